"""The weight and scale shuffles are the bijections of numerics §7, byte by byte."""

import pytest
import torch

from kimi_k3_specdec.reference import layouts


@pytest.mark.parametrize(("n", "kb"), [(16, 64), (48, 128), (256, 192)])
def test_weight_bytes_lie_where_the_formula_says(n, kb, rng):
    """Every byte, and back again."""
    packed = torch.randint(0, 256, (3, n, kb), generator=rng, dtype=torch.uint8)
    shuffled = layouts.shuffle_weight(packed)
    rows, columns = torch.meshgrid(torch.arange(n), torch.arange(kb), indexing="ij")
    offset = layouts.weight_offset(rows, columns, kb)
    assert offset.flatten().sort().values.equal(torch.arange(n * kb))
    assert all(s.flatten()[offset].equal(p) for s, p in zip(shuffled, packed, strict=True))
    assert layouts.unshuffle_weight(shuffled).equal(packed)


def test_weight_formula_by_hand():
    """One byte counted out."""
    # Row 17, byte 35 of 64-byte rows: second row group, third 16-byte column, second row in it, fourth byte.
    assert layouts.weight_offset(17, 35, 64) == 16 * 64 + 2 * 256 + 16 + 3


@pytest.mark.parametrize(("rows", "columns"), [(256, 8), (512, 16), (320, 12), (100, 4)])
def test_scales_lie_where_the_formula_says_and_padding_is_filler(rows, columns, rng):
    """Every code, and back again."""
    scales = torch.randint(0, 255, (rows, columns), generator=rng, dtype=torch.uint8)
    shuffled = layouts.shuffle_scales(scales)
    padded_rows, padded = shuffled.shape
    assert padded_rows % 256 == 0 and padded % 8 == 0
    r, c = torch.meshgrid(torch.arange(padded_rows), torch.arange(padded), indexing="ij")
    offset = layouts.scale_offset(r, c, padded)
    assert offset.flatten().sort().values.equal(torch.arange(padded_rows * padded))
    in_order = shuffled.flatten()[offset]
    assert in_order[:rows, :columns].equal(scales)
    assert (in_order[rows:] == layouts.SCALE_FILLER).all() and (in_order[:, columns:] == layouts.SCALE_FILLER).all()
    assert layouts.unshuffle_scales(shuffled).equal(in_order)


def test_scale_dwords_hold_two_rows_of_two_column_groups():
    """What a lane of the matrix instruction reads."""
    for row, column in ((0, 0), (16, 0), (5, 4), (53, 13)):
        word = (row // 32) * 128 + (column // 8) * 64 + (column % 4) * 16 + row % 16
        byte = 2 * ((column // 4) % 2) + (row // 16) % 2
        assert layouts.scale_offset(row, column, 16) == 4 * word + byte


def test_one_experts_scales_can_be_read_alone(rng):
    """Whole 32-row groups are contiguous."""
    scales = torch.randint(0, 255, (4 * 96, 8), generator=rng, dtype=torch.uint8)
    shuffled = layouts.shuffle_scales(scales)
    assert layouts.unshuffle_scales(shuffled[96:192]).equal(scales[96:192])


def test_shapes_that_no_tile_covers_are_refused():
    """Half a tile has no place."""
    with pytest.raises(ValueError, match="8 rows of 64 bytes"):
        layouts.shuffle_weight(torch.zeros(8, 64, dtype=torch.uint8))
