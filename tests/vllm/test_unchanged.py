"""Where the switch is off, or the model is another, the plug-in might as well not be installed."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

import engine
import pytest
import torch
from rig import OURS, Rig
from safetensors.torch import save_file

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


def deepseek(path: Path) -> str:
    """A tiny model of another kind, whose attention the stand-ins have too; its weights make tokens that differ."""
    hidden, heads, nope, rope, value, latent, inner, vocab = 256, 2, 128, 64, 128, 512, 512, 512
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": hidden,
        "intermediate_size": inner, "moe_intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": heads,
        "num_key_value_heads": heads, "kv_lora_rank": latent, "q_lora_rank": None, "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope, "v_head_dim": value, "n_routed_experts": 8, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "first_k_dense_replace": 2, "moe_layer_freq": 1, "vocab_size": vocab,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "hidden_act": "silu",
        "tie_word_embeddings": False}))
    shapes = {"model.embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden), "model.norm": (hidden,)}
    for layer in range(2):
        own = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
               "self_attn.q_proj": (heads * (nope + rope), hidden),
               "self_attn.kv_a_proj_with_mqa": (latent + rope, hidden), "self_attn.kv_a_layernorm": (latent,),
               "self_attn.kv_b_proj": (heads * (nope + value), latent), "self_attn.o_proj": (hidden, heads * value),
               "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    g = torch.Generator().manual_seed(0)
    weights = {f"{name}.weight": torch.ones(shape) if len(shape) == 1 else
               torch.randn(shape, generator=g) / shape[1] ** 0.5 for name, shape in shapes.items()}
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}, path / "model.safetensors")
    return str(path)


@pytest.mark.parametrize("extra", [{}, OURS], ids=["nothing said", "the switch is on"])
def test_another_model(rig: Rig, extra: dict[str, str]) -> None:
    """Its tokens, its configuration, every line of the log; the switch is Kimi-K3's, and nobody else's to refuse."""
    ours, theirs = compare(rig, f"deepseek{len(extra)}", model=deepseek(rig.folder / "deepseek"), drafts=0,
                           additional_config=extra, prompts=[[1, 2, 3, 4, 5], [7, 8, 9]])
    assert ours.tokens == theirs.tokens and len(set(ours.tokens[0])) > 2
    assert masked(ours.answer["config"]) == masked(theirs.answer["config"])
    differences = list(difflib.unified_diff(masked(theirs.log), masked(ours.log), lineterm="", n=0))
    assert not differences, "\n".join(differences)
