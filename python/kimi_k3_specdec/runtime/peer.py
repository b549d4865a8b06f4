"""Agreements of the tensor-parallel ranks, before anything collective (spec/runtime.md §4.5)."""

from __future__ import annotations

import torch
import torch.distributed


def tp_agree(ok: bool, group: torch.distributed.ProcessGroup | None) -> bool:
    """Whether `ok` on every rank of `group`, a group of CPU tensors (gloo); every rank calls it at the same point.

    `group` None: this process is the only one.
    """
    if group is None:
        return bool(ok)
    vote = torch.tensor([int(ok)], dtype=torch.int32)
    torch.distributed.all_reduce(vote, op=torch.distributed.ReduceOp.MIN, group=group)
    return bool(vote.item())
