"""The machine, its modules and their kernels. The work is done in Rust."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import _native
from .._native import MachineError as MachineError
from .._native import Refused as Refused

TICK_SECONDS = 10e-9
"""One tick of the virtual 100 MHz clock."""

FLOAT_FORMATS = {2: "<e", 4: "<f", 8: "<d"}

BytesLike = Any
"""`bytes`, `bytearray`, `memoryview`, a numpy array: whatever has the buffer protocol."""


@dataclass(frozen=True)
class Argument:
    """One argument in a kernarg segment."""

    offset: int
    nbytes: int
    kind: str
    """E.g. `global_buffer`, `by_value` or `hidden_block_count_x`."""
    is_hidden: bool
    """Whether the machine fills it in, not the caller."""


@dataclass(frozen=True)
class Kernel:
    """What a code object says of one of its kernels; sizes in bytes."""

    symbol: str
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds_bytes: int
    kernarg_bytes: int
    """The whole segment, hidden arguments included."""
    explicit_kernarg_bytes: int
    private_bytes: int
    max_block: int
    """Work-items of a workgroup at most."""
    code_bytes: int
    arguments: tuple[Argument, ...]

    def pack(self, *values: float | BytesLike) -> bytes:
        """The explicit arguments as a launch takes them, each at its offset.

        An int takes its argument's size (a pointer is an int), a float is an IEEE number of that size, anything else
        is bytes.
        """
        explicit = [argument for argument in self.arguments if not argument.is_hidden]
        if len(values) != len(explicit):
            raise _refused(f"kernel `{self.symbol}` got {len(values)} arguments; it takes {len(explicit)}",
                           "`arguments` lists them; compilers may append some of their own, mostly null pointers")
        segment = bytearray(self.explicit_kernarg_bytes)
        for index, (argument, value) in enumerate(zip(explicit, values, strict=True)):
            try:
                data = _encoded(value, argument.nbytes)
            except (OverflowError, KeyError, struct.error):
                data = b""
            if len(data) != argument.nbytes:
                raise _refused(f"argument {index} of `{self.symbol}` has {argument.nbytes} bytes, which {value!r:.80} "
                               "does not fit", "`arguments` lists sizes and kinds")
            segment[argument.offset : argument.offset + argument.nbytes] = data
        return bytes(segment)


@dataclass(frozen=True)
class Module:
    """A code object that one machine has loaded."""

    number: int
    kernels: dict[str, Kernel]
    """By symbol."""


class Machine:
    """Ranks with memory, code and queues of launches. Each rank is a device that reaches every rank's memory."""

    def __init__(
        self,
        ranks: int = 1,
        *,
        schedule_seed: int = 0,
        stall: str = "error",
        advance_ticks: int = 100_000_000,
        budget: int | None = None,
    ) -> None:
        """A machine without memory or code.

        `schedule_seed` decides the order in which waves run and nothing else. `stall`: when every wave waits, `error`
        raises with a list of who waits for what, `advance` lets the clock jump by `advance_ticks` (10 ns each), so
        that waits with a time-out give up. `budget`: wave instructions that one `run` may execute.
        """
        self._native = _native.Machine(
            ranks, schedule_seed=schedule_seed, stall=stall, advance_ticks=advance_ticks, budget=budget)
        self.ranks = ranks

    def load(self, code_object: BytesLike) -> Module:
        """Loads a gfx950 code object, every rank's from then on."""
        number = self._native.load(_bytes(code_object))
        kernels = (Kernel(**{**row, "arguments": tuple(Argument(*found) for found in row["arguments"])})
                   for row in self._native.kernels(number))
        return Module(number, {kernel.symbol: kernel for kernel in kernels})

    def unsupported_instructions(self, module: Module) -> list[tuple[int, str]]:
        """Instructions of the module's kernels that would stop a run: byte offset in the text section, text."""
        return self._native.unsupported_instructions(module.number)

    def allocate(
        self, nbytes: int, *, rank: int = 0, address: int | None = None, name: str = "memory", initialised: bool = True
    ) -> int:
        """Allocates memory on `rank`, at a guest address of your choice if you like; returns the address.

        It holds zeros. If not `initialised` it counts as never written, and a kernel that reads a byte before
        somebody has written it is stopped. Allocations of 1 MiB and more are sparse: what nobody touches costs nothing.
        `name` is what errors call it.
        """
        return self._native.allocate(nbytes, rank=rank, address=address, name=name, initialised=initialised)

    def free(self, address: int) -> None:
        """Frees the allocation that starts at `address`."""
        self._native.free(address)

    def write(self, address: int, data: BytesLike) -> None:
        """Writes memory now: launches that are queued run later and see it."""
        self._native.write(address, _bytes(data))

    def read(self, address: int, nbytes: int) -> bytes:
        """Memory as it is now, whether written or not: launches that are queued have not run yet."""
        return self._native.read(address, nbytes)

    def launch(
        self,
        module: Module,
        symbol: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        kernarg: BytesLike,
        *,
        rank: int = 0,
        dynamic_lds: int = 0,
    ) -> None:
        """Checks a launch and queues it on `rank`; the launches of a rank run one after another.

        `grid` counts workgroups and `block` work-items, in one to three dimensions. `kernarg` is the explicit
        arguments, laid out as the code object's metadata says, or the whole segment: of the explicit ones alone the
        hidden ones are filled in. `dynamic_lds` is in bytes, beyond what the kernel declares.
        """
        self._native.launch(module.number, symbol, _three(grid), _three(block), _bytes(kernarg), rank=rank,
                            dynamic_lds=dynamic_lds)

    def run(self) -> None:
        """Runs everything that is queued, on all ranks at once, without the GIL.

        Raises `MachineError`; the queues are empty then, and memory is as the failing instruction left it.
        """
        self._native.run()

    def statistics(self) -> dict[str, Any]:
        """What ran since the start or `clear_statistics`: counts by name, virtual `ticks`, host `seconds`.

        `loads_in_flight`: (kernel, barrier's pc, least and most bytes that a workgroup had in flight, workgroups).
        """
        return self._native.statistics()

    def clear_statistics(self) -> None:
        """Counts anew from now on."""
        self._native.clear_statistics()

    @property
    def ticks(self) -> int:
        """Virtual time since the start in ticks of 10 ns."""
        return self._native.ticks

    @property
    def seconds(self) -> float:
        """Virtual time since the start in seconds."""
        return self.ticks * TICK_SECONDS


def _bytes(data: BytesLike) -> bytes:
    return data if isinstance(data, bytes) else memoryview(data).tobytes()


def _encoded(value: float | BytesLike, nbytes: int) -> bytes:
    if isinstance(value, float):
        return struct.pack(FLOAT_FORMATS[nbytes], value)
    if hasattr(value, "__index__"):
        number = operator.index(value)
        return number.to_bytes(nbytes, "little", signed=number < 0)
    return _bytes(value)


def _refused(message: str, hint: str) -> Refused:
    error = Refused(message)
    error.hint = hint
    return error


def _three(sizes: int | Sequence[int]) -> tuple[int, int, int]:
    """One to three dimensions as three."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not 1 <= len(given) <= 3:
        raise _refused(f"a grid or block of {len(given)} dimensions", "pass one to three sizes")
    return (*given, *(1,) * (3 - len(given)))
