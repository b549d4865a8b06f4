"""Whatever fails on one rank while peers are set up is agreed on: every rank raises, none waits for one that left."""

from __future__ import annotations

import multiprocessing
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from kimi_k3_specdec import _native, kernels
from kimi_k3_specdec.runtime.peer import PeerBuffer, agreed, gather

RANKS, SECONDS = 2, 120
STEPS = ("handles", "create_world", "join_world", "link")


class Sabotaged:
    """A rank's memory of which one operation fails."""

    def __init__(self, unlinked: Any, operation: str) -> None:
        """Any other is done."""
        self._unlinked, self._operation = unlinked, operation

    def __getattr__(self, name: str) -> Any:
        """The real operation, or one that fails."""
        if name != self._operation:
            return getattr(self._unlinked, name)

        def fails(*_: object) -> None:
            raise OSError(f"{name} fails here")

        return fails


def attempts(rank: int, store: str, answers: SimpleQueue) -> None:
    """One rank: every operation fails on rank 0 or on rank 1 in turn; then none does."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    group = torch.distributed.group.WORLD
    code_object = kernels.code_object(_native.geometry("nano", RANKS)["code_object"])
    said = []
    for operation in (*STEPS, "nothing"):
        culprit = 0 if operation == "create_world" else 1

        def allocate() -> Any:
            return _native.Unlinked("nano", RANKS, [code_object], members=[rank], witness=False)

        unlinked = agreed(allocate, group, "taking memory")
        try:
            buffer = PeerBuffer(Sabotaged(unlinked, operation) if rank == culprit else unlinked, rank, RANKS, group)
            buffer.engine.self_test()
            said.append("passed")
        except RuntimeError as error:
            said.append(str(error))
    try:
        agreed(lambda: [][0] if rank == 0 else None, group, "loading")
    except RuntimeError as error:
        said.append(str(error))
    answers.put((rank, said, gather([rank, 2**32 - 1], group, RANKS)))
    torch.distributed.destroy_process_group()


def test_a_failure_of_one_rank_is_every_ranks(tmp_path: Path) -> None:
    """In upstream's words; what comes next is not held up."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    ranks = [context.Process(target=attempts, args=(rank, str(tmp_path / "store"), answers)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    hung = [process for process in ranks if process.is_alive()]
    for process in hung:
        process.kill()
    assert not hung and [process.exitcode for process in ranks] == [0] * RANKS
    said = {rank: (sentences, numbers) for rank, sentences, numbers in (answers.get() for _ in ranks)}
    other = "peer memory handshake failed on another TP rank"
    for rank in range(RANKS):
        own = [f"peer memory handshake failed on this TP rank: {step} fails here" for step in STEPS]
        expected = [own[i] if rank == (0 if step == "create_world" else 1) else other for i, step in enumerate(STEPS)]
        loading = f"loading failed on {'another' if rank else 'this'} TP rank"
        loading += "" if rank else ": list index out of range"
        assert said[rank][0] == [*expected, "passed", loading]
        assert said[rank][1] == [[0, 2**32 - 1], [1, 2**32 - 1]]


def test_one_rank_needs_nobody() -> None:
    """No group, no handles."""
    code_object = kernels.code_object(_native.geometry("nano", 1)["code_object"])
    buffer = PeerBuffer(_native.Unlinked("nano", 1, [code_object], witness=False), 0, 1, None)
    buffer.engine.self_test()
    with pytest.raises(RuntimeError, match="loading failed on this TP rank: list index out of range"):
        agreed(lambda: [][0], None, "loading")
