"""Tensors in a machine's memory, and launches that take them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kimi_k3_specdec.emulator import Machine


@dataclass(frozen=True)
class Guest:
    """A tensor's copy in a machine."""

    machine: Machine
    address: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def read(self) -> torch.Tensor:
        """What it holds now."""
        nbytes = self.dtype.itemsize * torch.Size(self.shape).numel()
        return torch.frombuffer(bytearray(self.machine.read(self.address, nbytes)), dtype=self.dtype).view(self.shape)


def put(machine: Machine, name: str, tensor: torch.Tensor) -> Guest:
    """Copies a tensor there."""
    tensor = tensor.contiguous()
    address = machine.allocate(tensor.nbytes, name=name)
    machine.write(address, tensor.view(torch.uint8).numpy())
    return Guest(machine, address, tuple(tensor.shape), tensor.dtype)


def empty(machine: Machine, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Guest:
    """Room for a result: never written, so a kernel that reads it is stopped."""
    nbytes = dtype.itemsize * torch.Size(shape).numel()
    return Guest(machine, machine.allocate(nbytes, name=name, initialised=False), shape, dtype)


def launch(machine: Machine, code_object: bytes, grid: int | tuple[int, ...], block: int | tuple[int, ...],
           *arguments: Guest | float, dynamic_lds: int = 0) -> None:
    """Runs the only kernel of a code object. Pointers that the compiler has appended are null."""
    module = machine.load(code_object)
    assert machine.unsupported_instructions(module) == []
    (kernel,) = module.kernels.values()
    explicit = [argument for argument in kernel.arguments if not argument.is_hidden]
    appended = explicit[len(arguments):]
    assert all(argument.kind == "global_buffer" for argument in appended)
    values = [value.address if isinstance(value, Guest) else value for value in arguments]
    machine.launch(module, kernel.symbol, grid, block, kernel.pack(*values, *(0 for _ in appended)),
                   dynamic_lds=dynamic_lds)
    machine.run()
