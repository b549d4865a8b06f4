"""Where the loaded MXFP4 bytes and scales lie: exact bijections, both directions (numerics §7.1, §7.2)."""

from __future__ import annotations

import torch
from torch import Tensor

SCALE_FILLER = 0xFF
"""In scale columns and rows that the real loader leaves uninitialised: NaN, so that using one shows."""


def shuffle_weight(packed: Tensor) -> Tensor:
    """uint8 [..., N, Kb] in row-major order, same shape out, bytes placed as `weight_offset` says.

    A tile of 16 rows x 16 bytes becomes 256 contiguous bytes; needs N % 16 == 0 and Kb % 64 == 0.
    """
    n, kb = _check_weight(packed)
    return packed.unflatten(-2, (n // 16, 16)).unflatten(-1, (kb // 16, 16)).transpose(-3, -2).reshape(packed.shape)


def unshuffle_weight(shuffled: Tensor) -> Tensor:
    """The inverse of `shuffle_weight`."""
    n, kb = _check_weight(shuffled)
    tiles = shuffled.reshape(*shuffled.shape[:-2], n // 16, kb // 16, 16, 16)
    return tiles.transpose(-3, -2).reshape(shuffled.shape)


def weight_offset(n: Tensor | int, j: Tensor | int, kb: int) -> Tensor | int:
    """Byte offset inside one expert of unshuffled (row `n`, packed byte `j`), `kb` bytes a row."""
    return (n // 16) * (16 * kb) + (j // 16) * 256 + (n % 16) * 16 + j % 16


def shuffle_scales(scales: Tensor) -> Tensor:
    """uint8 [R, C] in row-major order -> [R padded to 256, C padded to 8], bytes placed as `scale_offset` says.

    R counts the rows of all experts; padding holds `SCALE_FILLER`.
    """
    rows, columns = scales.shape
    padded = torch.full((-(-rows // 256) * 256, -(-columns // 8) * 8), SCALE_FILLER, dtype=torch.uint8)
    padded[:rows, :columns] = scales
    # axes: R / 32, (R / 16) % 2, R % 16, c / 8, (c / 4) % 2, c % 4
    parts = padded.reshape(padded.shape[0] // 32, 2, 16, padded.shape[1] // 8, 2, 4)
    return parts.permute(0, 3, 5, 2, 4, 1).reshape(padded.shape)


def unshuffle_scales(shuffled: Tensor) -> Tensor:
    """The inverse of `shuffle_scales`, padding kept; rows % 32 == 0 is enough, so one expert's rows will do."""
    rows, columns = shuffled.shape
    parts = shuffled.reshape(rows // 32, columns // 8, 4, 16, 2, 2)
    return parts.permute(0, 5, 3, 1, 4, 2).reshape(shuffled.shape)


def scale_offset(row: Tensor | int, column: Tensor | int, columns: int) -> Tensor | int:
    """Byte offset of global row `row`, scale column `column`; `columns` counts the padding too."""
    return (
        (row // 32) * (32 * columns) + (column // 8) * 256 + (column % 4) * 64
        + (row % 16) * 4 + ((column // 4) % 2) * 2 + (row // 16) % 2
    )


def _check_weight(packed: Tensor) -> tuple[int, int]:
    n, kb = packed.shape[-2:]
    if n % 16 or kb % 64:
        raise ValueError(f"{n} rows of {kb} bytes cannot be shuffled: rows must be a multiple of 16, bytes of 64")
    return n, kb
