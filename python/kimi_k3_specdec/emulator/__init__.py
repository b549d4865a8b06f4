"""A gfx950 machine on the CPU: loads a code object, runs its kernels on one or more ranks, checks every access.

Any code object for gfx950 will do, whoever compiled it. An example, `vector_add.co` being a kernel
`vector_add(const float* a, const float* b, float* sum, int n)`:

    import numpy as np
    from kimi_k3_specdec.emulator import Machine

    machine = Machine(schedule_seed=1)
    module = machine.load(open("vector_add.co", "rb").read())
    kernel = module.kernels["vector_add"]
    print(f"{kernel.vgprs} VGPRs, {kernel.lds_bytes} bytes of LDS, {kernel.explicit_kernarg_bytes} of arguments")

    a, b = np.arange(1000, dtype=np.float32), np.ones(1000, dtype=np.float32)
    addresses = [machine.allocate(a.nbytes, name=name) for name in ("a", "b")]
    machine.write(addresses[0], a)
    machine.write(addresses[1], b)
    total = machine.allocate(a.nbytes, name="sum", initialised=False)
    machine.launch(module, "vector_add", grid=4, block=256, kernarg=kernel.pack(*addresses, total, a.size))
    machine.run()
    assert (np.frombuffer(machine.read(total, a.nbytes), np.float32) == a + b).all()
    print(f"{machine.statistics()['wave_instructions']} wave instructions, {machine.seconds * 1e6:.2f} us of its time")

What cannot be done raises `Refused`, what goes wrong in a kernel raises `MachineError`, which says where: rank,
workgroup, wave, lane, source line. Both have a `.hint`.
"""

from .machine import Argument, Kernel, Machine, Module
from .machine import MachineError as MachineError
from .machine import Refused as Refused

__all__ = ["Argument", "Kernel", "Machine", "MachineError", "Module", "Refused"]
