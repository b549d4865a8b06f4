"""The checks themselves: a small change of any stage's output is found there, at its row and column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kimi_k3_specdec.decoding import outcome
from kimi_k3_specdec.decoding.checks.run import RunRecord, check_run
from kimi_k3_specdec.decoding.checks.verdicts import StageDiffers, Verdicts
from kimi_k3_specdec.decoding.exchanges import PAIR_REGIONS, ROW_REGIONS, Image, LayerExchanges, Part, parts
from kimi_k3_specdec.decoding.options import RunOptions
from kimi_k3_specdec.decoding.run import run
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.weights import RankWeights

LAYER = 2
"""A KDA layer in the middle of the first run: what it reads and writes all passes through the tap."""


class Altered:
    """Exchanges of a layer of which one region of one owner is replaced."""

    def __init__(self, inner: LayerExchanges, owner: int, image: Image) -> None:
        """Everything else is `inner`'s."""
        self._inner, self._owner, self._image = inner, owner, image

    def __getattr__(self, name: str) -> Any:
        """As the inner one has it."""
        return getattr(self._inner, name)

    def image(self, owner: int, region: str) -> Image | None:
        """The replacement where it applies."""
        mine = owner == self._owner and region == self._image.region
        return self._image if mine else self._inner.image(owner, region)


@pytest.fixture(scope="module")
def recorded() -> tuple[RunRecord, list[RankWeights]]:
    """The first launch of a run that is equal."""
    found: list[tuple[RunRecord, list[RankWeights]]] = []

    def keep(record: RunRecord, weights: list[RankWeights], verdicts: Verdicts) -> None:
        found.append((record, weights))
        check_run(record, weights, verdicts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "check_run", keep)
        assert run(RunOptions(steps=1), lambda *_: None).is_equal
    return found[0]


def altered(record: RunRecord, owner: int, image: Image) -> RunRecord:
    """`record` with one image replaced."""
    exchanges = Altered(record.exchanges[LAYER], owner, image)
    return replace(record, exchanges=record.exchanges | {LAYER: exchanges})


def significant(part: Part, tensor: torch.Tensor) -> tuple[int, ...]:
    """The index of a value that matters: the largest of the last row, in rank 1's half of a row that ranks share."""
    if part.dtype == torch.uint8:
        return (tensor.shape[0] - 1, 0)
    last = [n - 1 for n in tensor.shape[:-1]]
    values = tensor[tuple(last)].to(torch.float64).abs()
    if part.name in ("logits", "latent"):
        values[: len(values) // 2] = 0
    return (*last, int(values.argmax()))


def changes() -> list[Any]:
    """Every array of every region, with how many units in the last place must not pass."""
    # bf16: past one rounding, so 2 steps. float32 sums: a few times the roundings that they are allowed.
    steps = {torch.bfloat16: 2, torch.uint8: 1, torch.float32: 64}
    return [
        pytest.param(region, part.name, steps[part.dtype], id=f"{region}.{part.name}")
        for region in (*ROW_REGIONS, *PAIR_REGIONS) for part in parts(region, NANO.shard(2))
    ]


@pytest.mark.parametrize(("region", "name", "steps"), changes())
def test_a_changed_value_is_found(recorded: tuple[RunRecord, list[RankWeights]], region: str, name: str,
                                  steps: int) -> None:
    """In rank 1's buffer, of its own part where a region has parts of every rank."""
    record, weights = recorded
    image = record.exchanges[LAYER].image(1, region)
    assert image is not None
    index_in_region = [part.name for part in parts(region, image.shard)].index(name)
    part = parts(region, image.shard)[index_in_region]
    place = significant(part, image.tensors()[index_in_region])
    offset = sum(p.num_bytes for p in parts(region, image.shard)[:index_in_region])
    at = offset + int(np.ravel_multi_index(place, part.shape)) * part.dtype.itemsize
    data = bytearray(image.data)
    size = part.dtype.itemsize
    value = int.from_bytes(data[at : at + size], "little")
    if part.dtype == torch.uint8 and name == "packed":
        value ^= 0x77
    else:
        value += steps if (value >> 3) % 2 == 0 else -steps
    data[at : at + size] = value.to_bytes(size, "little")
    with pytest.raises(StageDiffers) as caught:
        check_run(altered(record, 1, replace(image, data=bytes(data))), weights, Verdicts())
    difference = caught.value.difference
    assert difference.layer == LAYER and difference.rank == 1, difference
    assert difference.stage.startswith(region.split("_")[0]), difference
    assert difference.row == place[part.row_axis] // part.rows_per_row, difference


@pytest.mark.parametrize("region", (*ROW_REGIONS, *PAIR_REGIONS))
@pytest.mark.parametrize("row", [7, 8], ids=["missing", "past-the-rows"])
def test_coverage(recorded: tuple[RunRecord, list[RankWeights]], region: str, row: int) -> None:
    """A value that was not stored, and one behind the step's eight rows that was."""
    record, weights = recorded
    image = record.exchanges[LAYER].image(1, region)
    assert image is not None
    part = parts(region, image.shard)[0]
    index = [0] * len(part.shape)
    index[part.row_axis] = row * part.rows_per_row
    at = int(np.ravel_multi_index(index, part.shape)) * part.dtype.itemsize
    written = bytearray(image.written)
    written[at] ^= 1
    with pytest.raises(StageDiffers) as caught:
        check_run(altered(record, 1, replace(image, written=bytes(written))), weights, Verdicts())
    difference = caught.value.difference
    assert (difference.stage, difference.row, difference.found) == (region, row, None)


def test_states_and_memory(recorded: tuple[RunRecord, list[RankWeights]]) -> None:
    """One bit of a foreign slot, of a convolution state, of the stream; a small error of a recurrent state."""
    record, weights = recorded
    step = record.states[LAYER][1]
    slot, kept = int(step.indices[1, 0]), int(step.indices[1, 2])
    foreign = next(i for i in range(1, len(step.unused_after)) if i not in step.indices)
    for stage, tensor, change in (
        ("state_memory", step.unused_after[foreign], lambda t: t.view(-1)[5:6].bitwise_xor_(1)),
        ("state_memory", step.unused_after[0], lambda t: t.view(-1)[-1:].bitwise_xor_(1)),
        ("state_memory", step.after.conv[kept], lambda t: t.fill_(0)),
        ("conv_state", step.after.conv[slot], lambda t: t.view(torch.int16)[1, 3:4].bitwise_xor_(1)),
        ("recurrent_state", step.after.recurrent[kept], lambda t: t.mul_(1 + 1e-3)),
        ("prefix", record.after[1].prefix, lambda t: t.view(torch.int16)[2, 9:10].bitwise_xor_(1)),
        ("blocks", record.after[1].blocks, lambda t: t.view(torch.int16)[2, 1, 9:10].bitwise_xor_(1)),
        ("delta", record.after[1].delta, lambda t: t.view(torch.int16)[2, 9:10].bitwise_xor_(1)),
    ):
        kept_bytes = tensor.clone()
        change(tensor)
        with pytest.raises(StageDiffers) as caught:
            check_run(record, weights, Verdicts())
        tensor.copy_(kept_bytes)
        assert (caught.value.difference.stage, caught.value.difference.rank) == (stage, 1)
    check_run(record, weights, Verdicts())


@pytest.mark.parametrize(("found", "ratio"), [([1.0, 2.5], 0.5), ([1.0, 2.0], 0.0)])
def test_a_verdict_keeps_the_worst(found: list[float], ratio: float) -> None:
    """Error over tolerance, element by element."""
    verdicts = Verdicts()
    expected, tolerance = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]])
    verdicts.close("stage", 1, 0, torch.tensor([found]), expected, tolerance)
    assert verdicts.max_ratio == pytest.approx(ratio)


@pytest.mark.parametrize("value", [1.25, torch.nan])
def test_a_verdict_refuses(value: float) -> None:
    """Anything but equality where the tolerance is 0, and a NaN anywhere."""
    with pytest.raises(StageDiffers):
        Verdicts().close("stage", 1, 0, torch.tensor([[value]]), torch.tensor([[1.0]]), torch.tensor([[0.0]]))
