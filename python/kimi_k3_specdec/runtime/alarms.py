"""A rank's alarm words, copied where and when its tokens are (spec/runtime.md §9)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from .. import _native


class _Span:
    """Device memory by address, in the form in which torch takes it."""

    def __init__(self, address: int, words: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (words,), "typestr": "<i4", "data": (address, True), "strides": None, "version": 3}


def view(address: int, words: int, device: torch.device) -> Tensor:
    """int32 [words] at `address` of a device; the memory stays its owner's."""
    if device.type == "cpu":
        return torch.frombuffer((ctypes.c_int32 * words).from_address(address), dtype=torch.int32)
    return torch.as_tensor(_Span(address, words), device=device)


class AlarmWords:
    """The words at the start of a rank's peer memory, into which every rank writes when it gives up."""

    def __init__(self, address: int, device: torch.device) -> None:
        """`device`: whose memory it is."""
        self._words = view(address, _native.MAX_RANKS, device)

    def copy(self) -> Callable[[], bool]:
        """Queues a copy to the current stream; what it returns says, once that has passed, whether all words are 0."""
        copied = torch.empty(self._words.shape, dtype=torch.int32, pin_memory=self._words.is_cuda)
        copied.copy_(self._words, non_blocking=True)
        return lambda: not copied.any()
