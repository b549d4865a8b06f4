"""Kimi-K3's own shapes, counted on the shipped code object: weights under way at the waits, and who loads them."""

import pytest

from kimi_k3_specdec.decoding.counting import count
from kimi_k3_specdec.decoding.options import RunOptions

STAGES = ("in_proj", "o_proj", "moe_in", "expert_down", "up")
"""The stages that wait with weights under way."""

BYTES = 48 << 10


@pytest.mark.usefixtures("real_shapes_alone")
@pytest.mark.slow
def test_every_gemv_stage_waits_with_its_weights_under_way(record_property):
    """At least 48 KiB in every workgroup that has a task of the stage, although the polling wave holds none."""
    options = RunOptions(geometry="k3", ranks=8, requests=1, speculative_tokens=1, layers=(13, 13))
    found = count(options, lambda *_: None)
    assert found["equal"] and found["masked_mfma"] == 0
    assert found["agrees"], [stage["stage"] for stage in found["stages"] if not stage["agrees"]]
    stages = {stage["stage"]: stage for stage in found["stages"]}
    for name in STAGES:
        least, most = stages[name]["weights_in_flight"]
        record_property("printed", f"{name}: {least} to {most} bytes of weights in flight")
        assert least >= BYTES, (name, least)
    assert not any(stage["polls_behind_weights"] for stage in found["stages"])
