"""What the host reads off vLLM's configurations, and when it speaks up."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kimi_k3_specdec.decoding.backbone import _text_config
from kimi_k3_specdec.reference.geometry import K3, NANO, NANO_DEEP, Geometry
from kimi_k3_specdec.vllm_plugin import settings
from kimi_k3_specdec.vllm_plugin.advice import PATIENCE_STEPS, Advice
from kimi_k3_specdec.vllm_plugin.shapes import decode_rows, groups_of


def test_cache_groups_count_only_those_with_kda_layers() -> None:
    """vLLM numbers its own groups too, and a drafter's layers may share one."""
    groups = [["mla.0"], ["kda.0", "drafter"], ["drafter.1"], ["kda.1", "kda.2"]]
    config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=names) for names in groups])
    assert groups_of(config, {"kda.0", "kda.1", "kda.2", "kda.3"}) == {"kda.0": 0, "kda.1": 1, "kda.2": 1}
    assert groups_of(None, {"kda.0"}) == {}


def test_rows_of_a_request() -> None:
    """Its last token and the drafts."""
    assert decode_rows(SimpleNamespace(speculative_config=None)) == 1
    assert decode_rows(SimpleNamespace(speculative_config=SimpleNamespace(num_speculative_tokens=3))) == 4


def deployment(geometry: Geometry, ranks: int) -> Any:
    """vLLM's configuration of a model, as far as the choice of a geometry reads it."""
    return SimpleNamespace(model_config=SimpleNamespace(hf_text_config=_text_config(geometry)),
                           parallel_config=SimpleNamespace(tensor_parallel_size=ranks))


@pytest.mark.parametrize(("geometry", "ranks"), [(NANO, 1), (NANO, 2), (NANO_DEEP, 2), (K3, 8)])
def test_the_emulator_runs_the_loaded_models_layers(geometry: Geometry, ranks: int) -> None:
    """Not only its widths: nano and nano-deep differ in nothing else."""
    assert settings._emulated(deployment(geometry, ranks)) == geometry.name


def test_other_layers_are_refused() -> None:
    """A model of nano's widths with other MLA layers."""
    config = deployment(NANO, 1)
    config.model_config.hf_text_config.linear_attn_config["kda_layers"].remove(2)
    with pytest.raises(ValueError, match="6 layers, .* it runs the layers of nano, nano-deep, k3"):
        settings._emulated(config)


STOCK = {"specialized": {}, "stock": {"a PIECEWISE graph": 70, "no metadata": 900}, "padded_rows": 0}


def said(advice: Advice, steps: int, rows: int, counters: dict[str, Any],
         caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of some steps."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(steps):
            advice.look(rows, counters)
    return [record.getMessage() for record in caplog.records]


def test_decode_that_is_never_ours_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the reason that most steps had, and what to change."""
    advice = Advice(decode_rows=8)
    assert said(advice, PATIENCE_STEPS - 1, 8, STOCK, caplog) == []
    (line,) = said(advice, PATIENCE_STEPS, 8, STOCK, caplog)
    assert "none of the first 64 decode steps" in line and "`a PIECEWISE graph`; set cudagraph_mode" in line


def test_prompts_are_no_decode_steps(caplog: pytest.LogCaptureFixture) -> None:
    """A long prompt in many pieces says nothing."""
    assert said(Advice(decode_rows=8), 200, 512, STOCK, caplog) == []


def test_one_specialized_step_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    """Then the configuration is right, and other steps have their reasons in the metrics."""
    advice = Advice(decode_rows=8)
    assert said(advice, 1, 8, STOCK | {"specialized": {8: 1}}, caplog) == []
    assert said(advice, 200, 8, STOCK, caplog) == []
