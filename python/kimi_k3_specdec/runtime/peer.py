"""What the tensor-parallel ranks do together: agree, wait for each other, map each other's memory.

Spec: runtime.md §4.5, §6. Whatever can fail on one rank is agreed on: no rank waits in a collective that another never
enters.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed

Value = TypeVar("Value")

POLL_SECONDS = 0.001
"""Between two looks at a collective that may not end."""


def tp_agree(ok: bool, group: torch.distributed.ProcessGroup | None) -> bool:
    """Whether `ok` on every rank of `group`, a group of CPU tensors (gloo); every rank calls it at the same point.

    `group` None: this process is the only one.
    """
    if group is None:
        return bool(ok)
    vote = torch.tensor([int(ok)], dtype=torch.int32)
    torch.distributed.all_reduce(vote, op=torch.distributed.ReduceOp.MIN, group=group)
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


def gather(numbers: list[int], group: torch.distributed.ProcessGroup | None, ranks: int) -> list[list[int]]:
    """Every rank's `numbers`, as many on each, by rank; 32 bits each, without sign."""
    words, count = array("I"), len(numbers)
    words.frombytes(Gathering(array("I", numbers).tobytes(), group, ranks).wait())
    return [words[first : first + count].tolist() for first in range(0, len(words), count)]


class Gathering:
    """`gather`, begun; nobody waits until `wait`."""

    def __init__(self, own: bytes, group: torch.distributed.ProcessGroup | None, ranks: int) -> None:
        """As many bytes on every rank, which begins the same gatherings in the same order."""
        self._all, self._work = bytearray(own), None
        if group is not None:
            part = torch.frombuffer(self._all, dtype=torch.uint8)
            self._all = bytearray(ranks * len(own))
            # One dimension: gloo hands out the parts in the input's shape.
            whole = torch.frombuffer(self._all, dtype=torch.uint8)
            self._work = torch.distributed.all_gather_into_tensor(whole, part, group=group, async_op=True)

    def wait(self, seconds: float | None = None) -> bytes:
        """Every rank's, by rank, one behind the other. Raises RuntimeError if a rank has gone, TimeoutError if not all
        are here in so many seconds.
        """
        if self._work is not None:
            deadline = None if seconds is None else time.monotonic() + seconds
            while deadline is not None and not self._work.is_completed():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not all ranks are here after {seconds:.1f} s")
                time.sleep(POLL_SECONDS)
            self._work.wait()
        return bytes(self._all)


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
            world = agreed(lambda: unlinked.create_world(ranks) if rank == 0 else bytes(len(handle)), group, what)
            world = bytes(gather(list(world), group, ranks)[0])
            agreed(lambda: rank == 0 or unlinked.join_world(world, rank), group, what)
        self.engine = agreed(lambda: unlinked.link(handles), group, what)
