"""Types of the Rust extension; its docstrings say what each call does. Addresses are in bytes, strides in elements."""

from typing import Any

__version__: str

MAX_ROWS: int
MAX_TOP_K: int
MAX_BLOCKS: int
SLICE: int
SEAM_VALUES: int
KDA_CHUNK: int
WITNESS_SOURCES: int
HIDDEN_SCALE_BYTES: int

class Refused(ValueError):
    """A request that cannot be served."""

    hint: str

class MachineError(RuntimeError):
    """The emulator stopped a launch: what, and where (rank, workgroup, wave, stage, source line)."""

    hint: str

class DeviceFailure(RuntimeError):
    """A rank gave up in a step; no result of it may be used."""

    records: list[str]
    hint: str

class Engine:
    """All ranks of a process, on the emulator."""

    def __init__(
        self,
        geometry: str,
        ranks: int,
        code_objects: list[bytes],
        *,
        schedule_seed: int = 0,
        stall: str = "error",
        timeout_seconds: float = 3.0,
        tap: bool = True,
        witness: bool = True,
        budget: int | None = None,
    ) -> None: ...
    def register(self, rank: int, address: int, nbytes: int, name: str, initialised: bool = True) -> None: ...
    def unregister(self, address: int) -> None: ...
    def bind_layer(self, rank: int, layer: int, addresses: dict[str, int], numbers: dict[str, float]) -> None: ...
    def bind_groups(self, rank: int, groups: list[tuple[int, int, int]]) -> None: ...
    def runs(self, layers: tuple[int, int] | None = None) -> list[tuple[int, int]]: ...
    def launch(
        self,
        rank: int,
        first: int,
        last: int,
        *,
        requests: int,
        speculative_tokens: int,
        prefix: int,
        blocks: int,
        blocks_row_stride: int,
        block_stride: int,
        delta: int,
        core: int,
        has_delta: bool,
        last_of_step: bool,
    ) -> None: ...
    def synchronize(self) -> None: ...
    def epoch(self, rank: int) -> int: ...
    def resume_at(self, epoch: int) -> None: ...
    def abort(self) -> None: ...
    def tap(self, rank: int, region: str, layer: int, epoch: int) -> tuple[bytes, bytes] | None: ...
    def clear_tap(self) -> None: ...
    def witness(self, rank: int, layer: int) -> bytes | None: ...
    def skip_instruction(self, rank: int, op: str, occurrence: int) -> int: ...
    def corrupt_store(self, rank: int, region: str, owner: int, occurrence: int, xor: int) -> int: ...
    def fault_fired(self, fault: int) -> bool: ...
    def statistics(self) -> dict[str, Any]: ...

def geometry(name: str, ranks: int) -> dict[str, Any]: ...
def step_rows(requests: int, speculative_tokens: int) -> int: ...
def disassemble(code_object: bytes) -> list[tuple[int, str]]: ...
def hip_devices() -> int: ...
def build_info() -> dict[str, str | bool]: ...
