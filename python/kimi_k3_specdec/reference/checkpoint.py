"""A checkpoint on disk: config.json and safetensors with the published names; made from a seed, loaded per rank."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import UserError
from .geometry import CONV_HISTORY, Geometry
from .loader import rank_weights
from .random_weights import checkpoint_specs, checkpoint_tensors
from .weights import RankWeights

CONFIG_FILE, TENSOR_FILE = "config.json", "model.safetensors"

_SAFETENSORS_NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.uint8: "U8"}


class CheckpointError(UserError):
    """A checkpoint that cannot be used; the message lists every problem."""

    def __init__(self, path: Path, problems: list[str], hint: str) -> None:
        """`problems`: found against needed, one a line; `hint`: what the user can do."""
        self.path, self.problems = path, problems
        super().__init__(f"checkpoint `{path}` cannot be used:\n" + "\n".join(f"  - {p}" for p in problems), hint)


def config(geometry: Geometry) -> dict[str, object]:
    """The text configuration that vLLM would read; its layer lists are 1-based."""
    g = geometry
    return {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "vocab_size": g.vocab,
        "hidden_size": g.hidden,
        "intermediate_size": g.dense_intermediate,
        "num_hidden_layers": g.num_layers,
        "num_attention_heads": g.mla_heads,
        "num_key_value_heads": g.mla_heads,
        "hidden_act": "situ",
        "activation_situ_beta": g.situ_beta,
        "activation_situ_linear_beta": g.situ_linear_beta,
        "rms_norm_eps": g.rms_eps,
        "moe_intermediate_size": g.moe_intermediate,
        "num_experts": g.num_experts,
        "num_experts_per_token": g.top_k,
        "num_shared_experts": g.num_shared_experts,
        "routed_expert_hidden_size": g.latent,
        "latent_moe_use_norm": True,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": True,
        "q_lora_rank": g.q_lora,
        "kv_lora_rank": g.kv_lora,
        "qk_nope_head_dim": g.nope,
        "qk_rope_head_dim": g.rope,
        "v_head_dim": g.v_dim,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "attn_res_block_size": g.attn_res_block_size,
        "linear_attn_config": {
            "kda_layers": [i + 1 for i in g.kda_layers],
            "full_attn_layers": [i + 1 for i in g.mla_layers],
            "num_heads": g.kda_heads,
            "head_dim": g.head_dim,
            "short_conv_kernel_size": CONV_HISTORY + 1,
            "use_full_rank_gate": True,
            "gate_lower_bound": g.gate_lower_bound,
        },
        "min_moe_intermediate_per_partition": 128,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def make(path: Path, geometry: Geometry, seed: int) -> None:
    """Writes a seeded random checkpoint as directory `path`, whole or not at all.

    Raises CheckpointError if `path` exists.
    """
    if path.exists():
        raise CheckpointError(path, ["it exists already"], "Choose another directory, or remove this one first.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _published(path) as partial:
        (partial / CONFIG_FILE).write_text(json.dumps(config(geometry) | {"seed": seed}, indent=1) + "\n")
        save_file(checkpoint_tensors(geometry, seed), partial / TENSOR_FILE)


@contextmanager
def _published(path: Path) -> Iterator[Path]:
    """A directory beside `path` that becomes `path` when the block ends well and vanishes otherwise."""
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield partial
        # mkdtemp makes it private; a checkpoint is as readable as any other file.
        partial.chmod(0o755)
        os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def load(path: Path, geometry: Geometry, ranks: int, layers: range | None = None) -> list[RankWeights]:
    """Every rank's loaded weights of checkpoint directory `path` (numerics §7).

    Raises CheckpointError that lists everything that does not fit, before any weight is read; ValueError if
    `geometry` cannot be split over `ranks`.
    """
    geometry.shard(ranks)
    with ExitStack() as stack:
        files, problems = _open(path, stack)
        problems += _config_problems(path, geometry)
        if not problems:
            problems = _tensor_problems(files, geometry)
        if problems:
            raise CheckpointError(
                path, problems, f"Make it again (or download it again), for geometry `{geometry.name}`."
            )
        return rank_weights(lambda name: files[name].get_tensor(name), geometry, ranks, layers)


def _open(path: Path, stack: ExitStack) -> tuple[dict[str, safe_open], list[str]]:
    """Every tensor's open file by tensor name, and what could not be opened."""
    files: dict[str, safe_open] = {}
    problems: list[str] = []
    found = sorted(path.glob("*.safetensors"))
    if not found:
        return files, [f"no `*.safetensors` in it, one such as `{TENSOR_FILE}` is needed"]
    for file in found:
        try:
            opened = stack.enter_context(safe_open(file, framework="pt"))
            files |= {name: opened for name in opened.keys()}
        except (SafetensorError, OSError) as error:
            problems.append(f"`{file.name}` ({file.stat().st_size} bytes) is truncated or damaged: {error}")
    return files, problems


def _config_problems(path: Path, geometry: Geometry) -> list[str]:
    file = path / CONFIG_FILE
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return [f"`{CONFIG_FILE}` is missing"]
    except (OSError, ValueError) as error:
        return [f"`{CONFIG_FILE}` cannot be read: {error}"]
    if not isinstance(found, dict):
        return [f"`{CONFIG_FILE}` holds a {type(found).__name__}, an object is needed"]
    return [
        f"`{CONFIG_FILE}`: `{key}` is {value!r}, `{geometry.name}` needs {needed!r}"
        for key, needed, value in _differences(found, config(geometry))
    ]


def _differences(found: Mapping, needed: Mapping, prefix: str = "") -> Iterator[tuple[str, object, object]]:
    for key, value in needed.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            yield from _differences(found[key], value, f"{prefix}{key}.")
        elif found.get(key) != value:
            yield f"{prefix}{key}", value, found.get(key)


def _tensor_problems(files: Mapping[str, safe_open], geometry: Geometry) -> list[str]:
    problems = []
    for name, (dtype, shape) in checkpoint_specs(geometry).items():
        if name not in files:
            problems.append(f"tensor `{name}` is missing")
            continue
        header = files[name].get_slice(name)
        found, needed = (header.get_dtype(), tuple(header.get_shape())), (_SAFETENSORS_NAMES[dtype], shape)
        if found != needed:
            problems.append(f"tensor `{name}` is {found[0]} {list(found[1])}, {needed[0]} {list(needed[1])} is needed")
    return problems
