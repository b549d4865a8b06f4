"""The ranks' votes: every rank gets the same ones, and nobody waits for a rank that has gone or hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kimi_k3_specdec import _native
from kimi_k3_specdec.runtime.stop import EngineStopped, FailStop

BOOKS = 48
TIMEOUT_SECONDS = 0.2
PATIENT_SECONDS = 20.0
"""Nothing here takes so long unless it hangs."""


class Books:
    """An executor whose books are numbered; `alarmed_after` settlements it has learned of an alarm."""

    def __init__(self, alarmed_after: int = 1 << 30) -> None:
        """No step yet."""
        self.settled, self.alarmed_after, self.seen, self.missed = 0, alarmed_after, [], []

    def after_step(self) -> bytes:
        """As many bytes as the real one gives."""
        self.settled += 1
        return bytes([7]) * BOOKS

    def verdict(self, books: bytes) -> bool:
        """All agree."""
        self.seen.append(books)
        return True

    def has_failed(self) -> bool:
        """Not this rank."""
        return False

    def is_alarmed(self) -> bool:
        """Whether it knows by now."""
        return self.settled > self.alarmed_after

    def miss(self, ranks: list[int]) -> None:
        """Who has not voted."""
        self.missed = ranks

    def stop(self) -> None:
        """Nothing to do."""

    def diagnosis(self, missing: list[int], told: list[list[int]]) -> dict[str, Any]:
        """What it was told."""
        return {"culprit": None, "sentence": f"ended: {missing}, silent: {self.missed}", "hint": "", "details": []}


class Rank:
    """Rank 0 of two, and the other one's place."""

    def __init__(self, executor: Books) -> None:
        """Both at one board."""
        self.executor, board = executor, _native.Board.create(2)
        self.other = _native.Board.join(board.handle(), 1)
        self.watcher = SimpleNamespace(lost={}, signal_name=None)
        options = SimpleNamespace(timeout_seconds=TIMEOUT_SECONDS, ranks=2)
        runner = SimpleNamespace(board=board, watcher=self.watcher, options=options, runs_on_host_memory=True,
                                 wait=lambda: None)
        self.fail_stop = FailStop(executor, runner, torch.device("cpu"))

    def later(self, what: Callable[[], object], seconds: float = 0.15) -> threading.Timer:
        """Does it while rank 0 waits."""
        timer = threading.Timer(seconds, what)
        timer.start()
        return timer


def test_books_are_looked_at_one_step_later() -> None:
    """Both ranks' of the step before, and those of every step once."""
    rank = Rank(Books())
    for step in range(4):
        rank.fail_stop.after_step()
        assert len(rank.executor.seen) == step
        rank.other.collect()
        rank.other.cast(bytes([step]) * BOOKS)
    assert rank.executor.seen == [bytes([7]) * BOOKS + bytes([step]) * BOOKS for step in range(3)]


def test_a_slow_rank_is_waited_for() -> None:
    """Longer than a kernel waits, as long as nothing is wrong; signals are handled meanwhile."""
    rank, caught = Rank(Books()), []
    rank.fail_stop.after_step()
    before = signal.signal(signal.SIGUSR1, lambda *_: caught.append(len(rank.executor.seen)))
    try:
        interrupted = rank.later(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        cast = rank.later(lambda: rank.other.cast(bytes(BOOKS)), TIMEOUT_SECONDS * 3)
        rank.fail_stop.after_step()
        cast.join()
        interrupted.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught == [0] and len(rank.executor.seen) == 1


def test_a_rank_that_has_gone_is_not_waited_for() -> None:
    """Not even as long as a kernel waits."""
    rank = Rank(Books())
    rank.fail_stop.after_step()
    gone = rank.later(lambda: rank.watcher.lost.update({1: 4711}))
    with pytest.raises(EngineStopped, match=r"ended: \[1\], silent: \[\]"):
        rank.fail_stop.after_step()
    gone.join()


def test_the_last_vote_of_a_rank_that_has_gone_counts() -> None:
    """Every rank sees it, so every rank goes on, and all stop behind the next step."""
    rank = Rank(Books())
    rank.fail_stop.after_step()
    rank.other.cast(bytes(BOOKS))
    rank.watcher.lost[1] = 4711
    rank.fail_stop.after_step()
    with pytest.raises(EngineStopped, match=r"ended: \[1\]"):
        rank.fail_stop.after_step()


def test_a_rank_that_hangs_is_left_behind_once_something_is_wrong() -> None:
    """A report that arrives while this rank waits is the first to say so."""
    rank = Rank(Books(alarmed_after=6))
    rank.fail_stop.after_step()
    started = time.monotonic()
    with pytest.raises(EngineStopped, match=r"ended: \[\], silent: \[1\]"):
        rank.fail_stop.after_step()
    assert TIMEOUT_SECONDS <= time.monotonic() - started < PATIENT_SECONDS


def test_a_board_refuses_what_would_mix_votes() -> None:
    """In words, with what to do about it."""
    board = _native.Board.create(2)
    board.cast(bytes(BOOKS))
    for misuse, words in [
        (lambda: board.cast(bytes(BOOKS)), "rank 0 casts vote 2 before it has collected the one before"),
        (lambda: board.cast(bytes(8)), "the board is for votes of 48 bytes, this process casts 8"),
        (lambda: _native.Board.join(board.handle(), 2), "rank 2 has no place on a board of 2 ranks"),
        (lambda: _native.Board.join(bytes(_native.PEER_HANDLE_BYTES), 1), "are no handle of shared memory"),
        (lambda: _native.Board.join(b"short", 1), "a peer handle has 64 bytes, this one 5"),
    ]:
        with pytest.raises(_native.Refused, match=words) as refused:
            misuse()
        assert refused.value.hint
    assert board.collect() is None and board.missing() == [1]
