"""One rank's launch state: memory, code, peers, the watcher beside them (spec/runtime.md §5, §6, §9)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .. import _native, kernels
from .peer import PeerBuffer, agreed, barrier, gather, votes
from .watch import Watcher

Value = TypeVar("Value")

TIMEOUT_SECONDS = 3.0
"""How long a kernel waits: vLLM kills a worker that has not ended after nine."""


@dataclass(frozen=True)
class RunnerOptions:
    """How a rank's kernels run. Every one of `ranks` is a process; this one is `rank`.

    `library`: the HIP to run on; None: the process's own, or ROCm's.
    """

    geometry: str
    rank: int
    ranks: int
    device: str = "emulator"
    timeout_seconds: float = TIMEOUT_SECONDS
    schedule_seed: int = 0
    tap: bool = False
    library: Path | None = None


class Runner:
    """A rank that reaches all others and has passed the start-up test with them; collective to make and to close."""

    def __init__(self, options: RunnerOptions, group: Any) -> None:
        """`group`: the ranks' gloo group.

        Raises RuntimeError on every rank if any rank cannot take its memory, reach a peer or pass the test.
        """
        self.options, self.group = options, group
        self.rank = options.rank

        def allocate() -> Any:
            name = _native.geometry(options.geometry, options.ranks)["code_object"]
            return _native.Unlinked(
                options.geometry, options.ranks, [kernels.code_object(name)], members=[options.rank],
                schedule_seed=options.schedule_seed, stall="advance", timeout_seconds=options.timeout_seconds,
                tap=options.tap, witness=False, device=options.device, library=options.library)

        unlinked = agreed(allocate, group, "taking the kernels' memory")
        # Emulated ranks share their time; GPUs need nothing but each other's memory.
        has_world = self.runs_on_host_memory
        self.engine = PeerBuffer(unlinked, options.rank, options.ranks, group, has_world=has_world).engine
        self.board = votes(options.rank, options.ranks, group)
        processes = gather([os.getpid()], group, options.ranks)
        peers = {rank: pid for rank, (pid,) in enumerate(processes) if rank != options.rank}
        self.watcher = agreed(lambda: Watcher(self.engine.abort_handle(), peers), group, "watching the other ranks")
        # Nobody launches before everybody's memory is mapped and zeroed.
        barrier(group)
        try:
            agreed(self.engine.self_test, group, "the start-up test of peer memory and graphs")
        except BaseException:
            self.watcher.close()
            raise

    @property
    def runs_on_host_memory(self) -> bool:
        """Whether kernels run on this CPU, on its tensors, when the host asks for them."""
        return self.options.device == "emulator"

    def wait(self) -> None:
        """Where kernels run when asked to: runs what is queued. Elsewhere they run by themselves."""
        if self.runs_on_host_memory:
            self.engine.run()

    def call(self, function: Callable[[], Value], what: str) -> Value:
        """`function` on every rank, or RuntimeError on every rank if it fails on any."""
        return agreed(function, self.group, what)

    def close(self) -> None:
        """Ends the watcher; memory goes with the object. No launch may be under way on any rank."""
        self.watcher.close()
