"""Dimensions, layer patterns and divisibility rules against the numbers that numerics §1 and §11 print."""

import dataclasses

import pytest

from kimi_k3_specdec.reference.geometry import K3, NANO, NANO_DEEP, by_name


def test_k3_layer_pattern():
    """MLA, block-write layers and valid blocks of the published model."""
    assert [i for i in range(93) if K3.layer_kind(i) == "mla"] == [*range(3, 92, 4), 92]
    assert len(K3.kda_layers) == 69
    assert [i for i in range(93) if K3.is_block_write(i)] == [0, 12, 24, 36, 48, 60, 72, 84]
    assert [K3.prev_valid_blocks(i) for i in (0, 1, 12, 13, 24, 85, 92)] == [0, 1, 1, 2, 2, 8, 8]
    assert K3.num_blocks == 8


def test_k3_shapes_on_eight_ranks():
    """The table of numerics §1.2."""
    shard = K3.shard(8)
    assert (shard.in_proj_used, shard.in_proj_rows, shard.conv_channels) == (6284, 6288, 4608)
    assert (shard.qkv_a_rows, shard.q_b_rows, shard.projection) == (3648, 2304, 1536)
    assert (shard.moe_intermediate, shard.w13_scale_columns, shard.w2_scale_valid, shard.w2_scale_columns) == (
        384, 112, 12, 16)
    assert (shard.shared_intermediate, shard.dense_intermediate, shard.vocab_rows) == (768, 4224, 20480)
    assert K3.softmax_scale == pytest.approx(0.07216878364870323, rel=1e-15)


def test_nano_shapes_on_two_ranks():
    """The numbers of numerics §11."""
    shard = NANO.shard(2)
    assert (shard.in_proj_used, shard.in_proj_rows) == (1154, 1168)
    assert (shard.qkv_a_rows, shard.q_b_rows) == (960, 384)
    assert (shard.router_rows, shard.w2_scale_valid, shard.w2_scale_columns) == (16, 4, 8)
    assert [NANO.prev_valid_blocks(i) for i in range(6)] == [0, 1, 1, 1, 1, 2]
    assert [NANO.mlp_valid_blocks(i) for i in range(6)] == [1, 1, 1, 1, 2, 2]


def test_nano_deep_has_a_run_of_nine_kda_layers():
    """MLA at 3 and 13 only, blocks of 4."""
    assert [i for i in range(14) if NANO_DEEP.layer_kind(i) == "mla"] == [3, 13]
    assert NANO_DEEP.num_blocks == 4
    NANO_DEEP.shard(2)


def test_every_broken_rule_is_listed():
    """One ValueError names all of them."""
    broken = dataclasses.replace(NANO, latent=384, top_k=17, mla_layers=(0, 3), v_dim=64)
    with pytest.raises(ValueError, match="cannot be split over 4 ranks") as error:
        broken.shard(4)
    for reason in ("experts 32 is not a multiple of 4 ranks x 16", "latent 384 is not a multiple of 256",
                   "routed intermediate 256", "top_k is 17", "v dim is 64", "KDA projection 512 differs",
                   "layer 0 writes a block and is MLA"):
        assert reason in str(error.value)


@pytest.mark.parametrize("ranks", [0, 3, 4])
def test_nano_refuses_other_rank_counts(ranks):
    """Only 1 and 2 divide it."""
    with pytest.raises(ValueError, match=f"over {ranks} ranks"):
        NANO.shard(ranks)


def test_unknown_geometry_names_the_known_ones():
    """The error is a list to choose from."""
    assert by_name("nano-deep") is NANO_DEEP
    with pytest.raises(ValueError, match="unknown geometry `k2`.*`k3`, `nano`, `nano-deep`"):
        by_name("k2")
