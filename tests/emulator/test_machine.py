"""`kimi_k3_specdec.emulator`: the documented example, memory, launches on several ranks, and what is refused."""

from __future__ import annotations

import inspect
import re
import struct
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_k3_specdec import emulator
from kimi_k3_specdec.emulator import Machine, MachineError, Refused

from .compiled import compile_hip

DOCUMENT = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text()
VECTOR_ADD = re.search(r"```cpp\n(.*?)```", DOCUMENT, re.DOTALL)[1]
EXAMPLE = re.search(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)[1]

HANDSHAKE = """
extern "C" __attribute__((global)) void handshake(unsigned* mine, unsigned* other) {
  __hip_atomic_store(other, 7u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  while (__hip_atomic_load(mine, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0) __builtin_amdgcn_s_sleep(1);
}
extern "C" __attribute__((global)) void spin() { for (;;) asm volatile("s_nop 0"); }
extern "C" __attribute__((global)) void ids(unsigned* out, unsigned width, unsigned height) {
  extern __attribute__((shared)) unsigned scratch[];
  const unsigned item = __builtin_amdgcn_workitem_id_x() + 8 * __builtin_amdgcn_workitem_id_y();
  const unsigned group = __builtin_amdgcn_workgroup_id_x()
      + width * (__builtin_amdgcn_workgroup_id_y() + height * __builtin_amdgcn_workgroup_id_z());
  scratch[item] = group * 64 + item;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[group * 64 + item] = scratch[63 - item];
}
"""


def test_the_documented_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """As printed, in the document and in the docstring alike."""
    (tmp_path / "vector_add.co").write_bytes(compile_hip(VECTOR_ADD))
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLE, "docs/emulator.md", "exec"), {})
    assert re.match(r"\d+ VGPRs, 0 bytes of LDS, 28 of arguments\n\d+ wave instructions, ", capsys.readouterr().out)
    assert textwrap.indent(EXAMPLE, "    ").strip() in inspect.getdoc(emulator)
    assert len(EXAMPLE.strip().splitlines()) <= 20


def test_memory_is_where_and_what_it_was_asked_to_be() -> None:
    """Fixed addresses, bytes-like data, sparse sizes, and memory that was never written."""
    machine = Machine(ranks=2)
    assert machine.allocate(64, address=1 << 44, rank=1, name="fixed") == 1 << 44
    for data in (b"bytes", bytearray(b"array"), memoryview(b"views"), np.frombuffer(b"numpy", np.uint8)):
        machine.write((1 << 44) + 3, data)
        assert machine.read((1 << 44) + 3, 5) == bytes(data)
    large = machine.allocate(1 << 40, name="sparse")
    machine.write(large + (1 << 39), b"x")
    assert machine.read(large + (1 << 39) - 1, 3) == b"\0x\0"
    machine.free(large)
    with pytest.raises(Refused, match="is in no one allocation"):
        machine.read(large, 1)


def test_ranks_run_at_once_and_reach_each_other() -> None:
    """Each rank waits for the other's store."""
    machine = Machine(ranks=2, schedule_seed=3)
    module = machine.load(compile_hip(HANDSHAKE))
    flags = [machine.allocate(4, rank=rank, name=f"flag {rank}") for rank in range(2)]
    for rank in range(2):
        kernarg = struct.pack("<QQ", flags[rank], flags[1 - rank])
        machine.launch(module, "handshake", 1, 64, kernarg, rank=rank)
    assert machine.read(flags[0], 4) == bytes(4)
    machine.run()
    assert [machine.read(flag, 4) for flag in flags] == [struct.pack("<I", 7)] * 2
    assert machine.statistics()["launches"] == 2
    machine.clear_statistics()
    assert machine.statistics()["launches"] == 0 and machine.ticks > 0


def test_a_rank_alone_deadlocks_and_the_error_says_where() -> None:
    """The poll's memory, by the name that it was given; afterwards the machine goes on."""
    machine = Machine()
    module = machine.load(compile_hip(HANDSHAKE))
    flag, other = (machine.allocate(4, name=name) for name in ("the flag", "the other"))
    machine.launch(module, "handshake", 1, 64, struct.pack("<QQ", flag, other))
    with pytest.raises(MachineError, match="deadlock, 1 waves wait for ever(.|\n)*the flag") as caught:
        machine.run()
    assert caught.value.hint
    machine.write(flag, b"\1")
    machine.launch(module, "handshake", 1, 64, struct.pack("<QQ", flag, other))
    machine.run()


def test_three_dimensions_and_dynamic_lds() -> None:
    """Every workgroup and work-item has its own coordinates."""
    machine = Machine()
    module = machine.load(compile_hip(HANDSHAKE))
    out = machine.allocate(3 * 2 * 2 * 64 * 4, initialised=False)
    machine.launch(module, "ids", (3, 2, 2), (8, 8), struct.pack("<QII", out, 3, 2), dynamic_lds=256)
    machine.run()
    found = np.frombuffer(machine.read(out, 3 * 2 * 2 * 64 * 4), np.uint32).reshape(12, 64)
    assert (found == np.arange(12 * 64).reshape(12, 64)[:, ::-1]).all()


def test_arguments_are_packed_where_the_metadata_says() -> None:
    """Integers, floats and bytes, with the compiler's padding; hidden arguments are the machine's."""
    source = """
    struct Pair { short a, b; };
    extern "C" __attribute__((global)) void sum(float* out, signed char a, float b, Pair c, double d) {
      out[__builtin_amdgcn_workitem_id_x()] = a + b + c.a * c.b + (float)d + __builtin_amdgcn_workgroup_size_x();
    }
    """
    machine = Machine()
    module = machine.load(compile_hip(source))
    kernel = module.kernels["sum"]
    assert [argument.offset for argument in kernel.arguments[:5]] == [0, 8, 12, 16, 24]
    assert any(argument.is_hidden for argument in kernel.arguments[5:])
    out = machine.allocate(64 * 4, initialised=False)
    packed = kernel.pack(out, -3, 0.5, struct.pack("<hh", -7, 11), np.float64(0.25))
    assert packed == struct.pack("<Qb3xfhh4xd", out, -3, 0.5, -7, 11, 0.25)
    machine.launch(module, "sum", 1, 64, packed)
    machine.run()
    assert (np.frombuffer(machine.read(out, 64 * 4), np.float32) == -3 + 0.5 - 77 + 0.25 + 64).all()
    for values, message in (((out, 1, 2.0, b"1234"), "got 4 arguments; it takes 5"),
                            ((out, 128 + 128, 2.0, b"1234", 0.0), "argument 1 of `sum` has 1 bytes, which 256"),
                            ((-(2**63) - 1, 1, 2.0, b"1234", 0.0), "argument 0 of `sum` has 8 bytes"),
                            ((out, 1.0, 2.0, b"1234", 0.0), "argument 1 of `sum` has 1 bytes, which 1.0"),
                            ((out, 1, 2.0, b"12345", 0.0), "argument 3 of `sum` has 4 bytes")):
        with pytest.raises(Refused, match=re.escape(message)) as caught:
            kernel.pack(*values)
        assert caught.value.hint


def test_a_run_releases_the_gil_and_ends_at_its_budget() -> None:
    """Another thread counts while a kernel spins."""
    machine = Machine(budget=20_000_000)
    machine.launch(machine.load(compile_hip(HANDSHAKE)), "spin", 1, 64, b"")
    counted, done = 0, threading.Event()
    errors: list[MachineError] = []

    def run() -> None:
        try:
            machine.run()
        except MachineError as error:
            errors.append(error)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not done.is_set():
        counted += 1
    thread.join()
    assert counted > 100 and "more than 20000000 wave instructions" in str(errors[0])


def test_what_a_kernel_may_not_do_is_located() -> None:
    """Past the end of an allocation, at its source line."""
    machine = Machine()
    module = machine.load(compile_hip(VECTOR_ADD))
    a = machine.allocate(4 * 100, name="a")
    machine.launch(module, "vector_add", 1, 256, struct.pack("<QQQi", a, a, a, 101))
    where = "past the end of `a` .*workgroup 0, wave 1, lane 36 of `vector_add` .*hip:3"
    with pytest.raises(MachineError, match=where):
        machine.run()


def test_what_is_no_instruction_is_listed_and_stops_the_run() -> None:
    """As its encoding, not as some other instruction."""
    source = 'extern "C" __attribute__((global)) void odd(int* out) { asm volatile(".long 0xfbadc0de"); *out = 1; }'
    machine = Machine()
    module = machine.load(compile_hip(source))
    ((pc, listed),) = machine.unsupported_instructions(module)
    out = machine.allocate(4)
    machine.launch(module, "odd", 1, 64, struct.pack("<Q", out))
    with pytest.raises(MachineError, match=f"0xfbadc0de is no instruction .* at pc {pc:#x} `0xfbadc0de`, in odd"):
        machine.run()
    assert listed == "0xfbadc0de" and machine.read(out, 4) == bytes(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, k: Machine(0), "a machine of 0 ranks"),
        (lambda m, k: Machine(257), "a machine of 257 ranks"),
        (lambda m, k: Machine(stall="wait"), "unknown stall policy `wait`"),
        (lambda m, k: Machine(stall="advance", advance_ticks=0), "advances by 0 ticks"),
        (lambda m, k: m.load(b""), "not a complete ELF"),
        (lambda m, k: m.allocate(1 << 63), "cannot provide"),
        (lambda m, k: m.allocate(1 << 63, initialised=False), "cannot provide"),
        (lambda m, k: m.allocate(16, address=2**64 - 8), "cannot provide"),
        (lambda m, k: m.allocate(16, rank=7), "rank 7 does not exist"),
        (lambda m, k: [m.allocate(16, address=4096), m.allocate(16, address=4104)], "overlaps"),
        (lambda m, k: m.free(12), "no allocation starts at 0xc"),
        (lambda m, k: m.write(12, b"x"), "access to 1 bytes at 0xc"),
        (lambda m, k: m.read(m.allocate(16), 17), "access to 17 bytes"),
        (lambda m, k: m.read(m.allocate(16), 1 << 62), "bytes at"),
        (lambda m, k: m.launch(k, "vector_sub", 1, 64, bytes(28)), "no kernel `vector_sub`; it has vector_add"),
        (lambda m, k: m.launch(k, "vector_add", 1, 64, bytes(27)), "got 27 bytes of arguments; it takes 28"),
        (lambda m, k: m.launch(k, "vector_add", 0, 64, bytes(28)), "it is empty"),
        (lambda m, k: m.launch(k, "vector_add", 1, (33, 32), bytes(28)), "at most 1024 work-items"),
        (lambda m, k: m.launch(k, "vector_add", (1, 2, 3, 4), 64, bytes(28)), "4 dimensions"),
        (lambda m, k: m.launch(k, "vector_add", 1, 64, bytes(28), rank=1), "rank 1 does not exist"),
        (lambda m, k: m.launch(emulator.Module(5, {}), "vector_add", 1, 64, bytes(28)), "module 5 was not loaded"),
    ],
    ids=range(21),
)
def test_what_cannot_be_done_is_refused(call, message: str) -> None:
    """Each with a hint, and the machine is as it was."""
    machine = Machine()
    module = machine.load(compile_hip(VECTOR_ADD))
    with pytest.raises(Refused, match=re.escape(message)) as caught:
        call(machine, module)
    assert caught.value.hint
    machine.run()
    assert machine.statistics()["launches"] == 0


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_code_object_is_refused_or_stopped(data: st.DataObject) -> None:
    """Cut short or with bytes replaced, in headers, metadata and code alike: never a panic, which is no `Exception`."""
    elf = bytearray(compile_hip(HANDSHAKE))
    if data.draw(st.integers(0, 3)) == 0:
        del elf[data.draw(st.integers(0, len(elf))) :]
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(elf) - 1), st.integers(0, 255)), max_size=8)
                              if elf else st.just([])):
        elf[at] = byte
    machine = Machine(budget=100_000)
    memory = machine.allocate(4096)
    try:
        module = machine.load(elf)
        machine.unsupported_instructions(module)
        for kernel in module.kernels.values():
            machine.launch(module, kernel.symbol, 1, 64, memory.to_bytes(8, "little") * 2, dynamic_lds=256)
        machine.run()
    except (Refused, MachineError) as error:
        assert str(error) and error.hint
