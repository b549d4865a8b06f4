"""What the host reads off vLLM's configurations, without vLLM."""

from __future__ import annotations

from typing import Any


def decode_rows(vllm_config: Any) -> int:
    """Rows of a request that decodes."""
    spec = vllm_config.speculative_config
    return 1 + (0 if spec is None else spec.num_speculative_tokens)


def groups_of(kv_cache_config: Any, names: set[str]) -> dict[str, int]:
    """Layer name -> number of its cache group, of the layers in `names`; groups count from 0 in vLLM's order."""
    found: dict[str, int] = {}
    number = 0
    for group in () if kv_cache_config is None else kv_cache_config.kv_cache_groups:
        own = [name for name in group.layer_names if name in names]
        found |= dict.fromkeys(own, number)
        number += bool(own)
    return found
