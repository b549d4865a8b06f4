"""Where the switch is off, or the model is another, the plug-in might as well not be installed."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

import engine
import pytest
from rig import OURS, Rig

pytestmark = pytest.mark.vllm

MASKS = (
    (r"\d\d-\d\d \d\d:\d\d:\d\d", "TIME"), (r"W\d+ [\d:.]+ \d+", "TIME"), (r"pid=\d+", "pid"),
    (r"\b[0-9a-f]{32}\b", "ID"), (r"instance_id='\d+'", "ID"),
    (r"vllm_dist_\w+", "ID"), (r"-?[\d.]+ ?(s|seconds|GiB|it/s)\b", "SIZE"), (r"\d\d:\d\d", "MINUTES"),
    (r"0x[0-9a-f]+", "ADDRESS"), (r"tcp://\S+", "ADDRESS"), (r"(with|without)-plugin", "FOLDER"),
)
"""What differs between two starts of the same engine."""


def masked(log: str) -> list[str]:
    """A log without times, numbers of processes and addresses."""
    for pattern, word in MASKS:
        log = re.sub(pattern, word, log)
    return log.splitlines()


def compare(rig: Rig, name: str, **changes: Any) -> tuple[engine.Outcome, engine.Outcome]:
    """The same engine with and without the plug-in."""
    return tuple(rig.run(f"{name}-{'with' if ours else 'without'}-plugin", with_ours=ours, **changes)
                 for ours in (True, False))  # type: ignore[return-value]


@pytest.mark.parametrize("extra", [{}, {"decode_backend": "auto"}], ids=["nothing said", "auto"])
def test_kimi_k3_without_the_switch(rig: Rig, extra: dict[str, str]) -> None:
    """Tokens, metrics and every line of the log."""
    ours, theirs = compare(rig, f"auto{len(extra)}", additional_config=extra, tokens=3)
    assert ours.tokens == theirs.tokens
    assert set(ours.answer["metrics"]) == set(theirs.answer["metrics"])
    differences = list(difflib.unified_diff(masked(theirs.log), masked(ours.log), lineterm="", n=0))
    assert not differences, "\n".join(differences)


def llama(path: Path) -> str:
    """A model of another kind, as far as its configuration."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}))
    return str(path)


@pytest.mark.parametrize("extra", [{}, OURS], ids=["nothing said", "the switch is on"])
def test_another_model(rig: Rig, extra: dict[str, str]) -> None:
    """Its whole configuration, and every line of the log; the switch is Kimi-K3's, and nobody else's to refuse."""
    ours, theirs = compare(rig, f"llama{len(extra)}", model=llama(rig.folder / "llama"), additional_config=extra,
                           only_configure=True, arguments={"attention_backend": None})
    assert masked(ours.answer["config"]) == masked(theirs.answer["config"])
    differences = list(difflib.unified_diff(masked(theirs.log), masked(ours.log), lineterm="", n=0))
    assert not differences, "\n".join(differences)
