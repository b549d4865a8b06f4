"""Weights in flight at the waits of the GEMV stages at Kimi-K3's shapes, counted on the shipped code object."""

import pytest

from kimi_k3_specdec import kernels
from kimi_k3_specdec.decoding.options import RunOptions
from kimi_k3_specdec.decoding.real_layers import run_layers
from kimi_k3_specdec.reference.geometry import by_name

STAGES = ("hidden_gemv", "o_proj", "down", "up")
"""The stages that wait with weights under way; each waits in `fill_and_wait`, and nowhere else."""

BYTES = 48 << 10


@pytest.mark.slow
def test_every_gemv_stage_waits_with_its_weights_under_way(record_property):
    """At least 48 KiB in every workgroup that has a task of the stage, although the polling wave holds none."""
    options = RunOptions(geometry="k3", ranks=8, requests=1, speculative_tokens=1, layers=(13, 13))
    name = "layers_k3_tp8"
    outcome = run_layers(options, by_name("k3"), name, kernels.code_object(name), lambda *_: None)
    assert outcome.is_equal and outcome.statistics["masked_mfma"] == 0
    waits = {}
    for functions, least, most, workgroups in outcome.statistics["loads_in_flight"]:
        if any(function.startswith("fill_and_wait") for function in functions):
            stage = next(s for s in STAGES if any(function.startswith(f"{s}<") for function in functions))
            waits[stage] = (least, most)
            record_property("printed", f"{stage}: {least} to {most} bytes in flight, {workgroups} workgroups")
    assert sorted(waits) == sorted(STAGES)
    for stage, (least, _) in waits.items():
        assert least >= BYTES, (stage, least)
