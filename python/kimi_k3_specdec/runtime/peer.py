"""What the tensor-parallel ranks do together: agree, wait for each other, map each other's memory.

Spec: runtime.md §4.5, §6. Whatever can fail on one rank is agreed on: no rank waits in a collective that another never
enters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed

from .. import _native

Value = TypeVar("Value")

POLL_SECONDS = 0.001
"""Between two looks at a collective that may not end."""

_kept: list[Any] = []
"""The last collective. Gloo's thread would else drop it last, and with it tensors of Python's: behind the interpreter's
end, where that needs what is no more, the process would abort."""


def _end(work: Any) -> None:
    """Waits for a collective that has been begun."""
    work.wait()
    _kept[:] = [work]


def tp_agree(ok: bool, group: torch.distributed.ProcessGroup | None) -> bool:
    """Whether `ok` on every rank of `group`, a group of CPU tensors (gloo); every rank calls it at the same point.

    `group` None: this process is the only one.
    """
    if group is None:
        return bool(ok)
    vote = torch.tensor([int(ok)], dtype=torch.int32)
    _end(torch.distributed.all_reduce(vote, op=torch.distributed.ReduceOp.MIN, group=group, async_op=True))
    return bool(vote.item())


def agreed(function: Callable[[], Value], group: torch.distributed.ProcessGroup | None, what: str) -> Value:
    """`function()` on every rank of `group`. Raises RuntimeError on every rank if it raises on any, chained to the own
    exception; every rank calls it at the same point.
    """
    value, error = None, None
    try:
        value = function()
    except Exception as raised:
        error = raised
    if tp_agree(error is None, group):
        return value  # type: ignore[return-value]
    if error is None:
        raise RuntimeError(f"{what} failed on another TP rank")
    raise RuntimeError(f"{what} failed on this TP rank: {error}") from error


def barrier(group: torch.distributed.ProcessGroup | None) -> None:
    """Until every rank of `group` is here."""
    if group is not None:
        torch.distributed.barrier(group)


def gather(numbers: list[int], group: torch.distributed.ProcessGroup | None, ranks: int,
           seconds: float | None = None) -> list[list[int]]:
    """Every rank's `numbers`, as many on each, by rank. Raises RuntimeError if a rank has gone, TimeoutError if not all
    are here in so many seconds.
    """
    if group is None:
        return [numbers]
    part = torch.tensor(numbers, dtype=torch.int64)
    # One dimension: gloo hands out the parts in the input's shape.
    whole = torch.empty(ranks * len(numbers), dtype=torch.int64)
    work = torch.distributed.all_gather_into_tensor(whole, part, group=group, async_op=True)
    deadline = None if seconds is None else time.monotonic() + seconds
    while deadline is not None and not work.is_completed():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all ranks are here after {seconds:.1f} s")
        time.sleep(POLL_SECONDS)
    _end(work)
    return whole.view(ranks, -1).tolist()


def _of_rank_0(make: Callable[[], bytes], rank: int, ranks: int, group: torch.distributed.ProcessGroup | None,
               what: str) -> bytes:
    """The peer handle that rank 0 makes, on every rank. Raises RuntimeError on every rank if it cannot."""
    own = agreed(lambda: make() if rank == 0 else bytes(_native.PEER_HANDLE_BYTES), group, what)
    return bytes(gather(list(own), group, ranks)[0])


def votes(rank: int, ranks: int, group: torch.distributed.ProcessGroup | None) -> Any:
    """This rank's place at the group's board (`_native.Board`). Collective; raises RuntimeError on every rank if one
    cannot make or reach it.
    """
    board: Any = None
    what = "setting up the ranks' votes"

    def create() -> bytes:
        nonlocal board
        board = _native.Board.create(ranks)
        return board.handle()

    handle = _of_rank_0(create, rank, ranks, group, what)
    return agreed(lambda: board or _native.Board.join(handle, rank), group, what)


class PeerBuffer:
    """Every rank's peer memory, mapped by every rank; `engine` can launch. Collective to make."""

    def __init__(self, unlinked: Any, rank: int, ranks: int, group: torch.distributed.ProcessGroup | None, *,
                 has_world: bool = True) -> None:
        """`unlinked`: this rank's memory and code (`_native.Unlinked`). `has_world`: emulators must share their time.

        Raises RuntimeError on every rank if one cannot export its memory or import another's.
        """
        what = "peer memory handshake"
        if ranks == 1:
            self.engine = agreed(unlinked.link, group, what)
            return
        (own, handle), = agreed(unlinked.handles, group, what)
        assert own == rank
        handles = [bytes(numbers) for numbers in gather(list(handle), group, ranks)]
        if has_world:
            world = _of_rank_0(lambda: unlinked.create_world(ranks), rank, ranks, group, what)
            agreed(lambda: rank == 0 or unlinked.join_world(world, rank), group, what)
        self.engine = agreed(lambda: unlinked.link(handles), group, what)
