"""How far each stage was from the reference, against how far it may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor

MISMATCH = 1e9
"""Error over tolerance of a wrong value that had to be exact, of a NaN, and of one that was never stored."""

SIGNIFICANT = 2.0**-8
"""Elements below this share of their row's largest do not count for `smallest_caught` (numerics §10)."""


@dataclass(frozen=True)
class Difference:
    """The worst element of the first stage that failed."""

    step: int
    layer: int
    stage: str
    rank: int
    row: int
    column: int
    found: float | None
    """None: nothing was stored there."""
    expected: float
    tolerance: float
    detail: str = ""

    def __str__(self) -> str:
        """One sentence: where, and both values."""
        if self.found is None:
            values = "nothing was stored"
        else:
            values = f"{self.found:.9g}, expected {self.expected:.9g} within {self.tolerance:.3g}"
        where = f"step {self.step}, layer {self.layer}, stage {self.stage}, rank {self.rank}"
        detail = f" ({self.detail})" if self.detail else ""
        return f"{where}, row {self.row}, column {self.column}: {values}{detail}"


class StageDiffers(Exception):
    """A stage is not what the reference says; later stages of the step mean nothing."""

    def __init__(self, difference: Difference) -> None:
        """The message is the difference in words."""
        super().__init__(str(difference))
        self.difference = difference


@dataclass
class StageVerdict:
    """One stage over all steps, layers and ranks."""

    ratio: float = 0.0
    """Largest error over tolerance."""
    max_error: float = 0.0
    tolerance: float = 0.0
    """Of the element with the largest ratio."""
    error: float = 0.0
    """Of the same element."""
    smallest_caught: float = field(default=float("inf"))
    """The least error of a significant element that its tolerance excludes, relative to its row's largest; 0: a bit."""
    elements: int = 0


class Verdicts:
    """Collects comparisons; the first failure stops them."""

    def __init__(self) -> None:
        """Nothing compared yet."""
        self.stages: dict[str, StageVerdict] = {}
        self.step = 0

    @property
    def max_ratio(self) -> float:
        """Over all stages."""
        return max((s.ratio for s in self.stages.values()), default=0.0)

    def close(self, stage: str, layer: int, rank: int, found: Tensor, expected: Tensor, tolerance: Tensor, *,
              rows: Tensor | None = None, scale: Tensor | None = None, detail: str = "") -> None:
        """Compares [S, N] (or [S]) values; `tolerance` 0 means exact. `rows` int [S] names other rows in reports.

        `scale`: the values' own size, where `found` and `expected` are differences.
        """
        found, expected = found.to(torch.float64), expected.to(torch.float64)
        error = (found - expected).abs()
        # 0 / 0 is a match, x / 0 a mismatch, and a NaN on either side too.
        ratio = torch.where(error == 0, 0.0, error / tolerance).nan_to_num(nan=MISMATCH, posinf=MISMATCH)
        at = int(ratio.argmax())
        worst = float(ratio.reshape(-1)[at])
        verdict = self.stages.setdefault(stage, StageVerdict())
        verdict.elements += error.numel()
        verdict.max_error = max(verdict.max_error, float(error.nan_to_num(nan=MISMATCH).max()))
        if worst >= verdict.ratio:
            verdict.ratio = worst
            verdict.error = float(error.reshape(-1)[at].nan_to_num(nan=MISMATCH))
            verdict.tolerance = float(tolerance.reshape(-1)[at])
        self._note_smallest(verdict, expected if scale is None else scale, tolerance)
        if worst > 1:
            row, column = divmod(at, error[0].numel())
            row = row if rows is None else int(rows[row])
            values = (float(t.reshape(-1)[at]) for t in (found, expected, tolerance))
            raise StageDiffers(Difference(self.step, layer, stage, rank, row, column, *values, detail))

    def exact(self, stage: str, layer: int, rank: int, found: Tensor, expected: Tensor, *,
              rows: Tensor | None = None, detail: str = "") -> None:
        """Compares bits of equal dtypes; values appear in the report."""
        same = bits(found) == bits(expected)
        verdict = self.stages.setdefault(stage, StageVerdict())
        verdict.smallest_caught = 0.0
        verdict.elements += same.numel()
        if not same.all():
            verdict.ratio = verdict.max_error = MISMATCH
            at = int((~same).reshape(-1).to(torch.uint8).argmax())
            row, column = divmod(at, same[0].numel())
            row = row if rows is None else int(rows[row])
            values = (float(t.reshape(-1)[at]) for t in (found, expected))
            raise StageDiffers(Difference(self.step, layer, stage, rank, row, column, *values, 0.0, detail))

    def refuse(self, stage: str, layer: int, rank: int, row: int, column: int, detail: str,
               found: float | None = None, expected: float = 0.0) -> NoReturn:
        """One value is wrong, or not stored (`found` None), or stored where nothing may be."""
        self.stages.setdefault(stage, StageVerdict()).ratio = MISMATCH
        raise StageDiffers(Difference(self.step, layer, stage, rank, row, column, found, expected, 0.0, detail))

    @staticmethod
    def _note_smallest(verdict: StageVerdict, size: Tensor, tolerance: Tensor) -> None:
        largest = size.abs().reshape(size.shape[0], -1).amax(-1)
        scale = largest.reshape(-1, *[1] * (size.dim() - 1))
        counts = (size.abs() >= SIGNIFICANT * scale) & (scale > 0)
        relative = torch.where(counts, tolerance / scale, torch.inf)
        verdict.smallest_caught = min(verdict.smallest_caught, float(relative.min()))


def bits(x: Tensor) -> Tensor:
    """Integers of the same width, so that NaNs compare too."""
    by_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.contiguous().view(by_size[x.element_size()])
