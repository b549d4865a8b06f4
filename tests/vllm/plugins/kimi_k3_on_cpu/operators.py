"""Custom operators that only vLLM's CPU build has, in torch."""

from __future__ import annotations

import torch
from torch import Tensor

_library: list[torch.library.Library] = []


def install() -> None:
    """Defines what is missing, and keeps vLLM off the branches for CPUs whose operators are missing too."""
    library = torch.library.Library("_C", "FRAGMENT")
    _library.append(library)
    _define(library, "init_cpu_memory_env(int[] nodes) -> ()", lambda nodes: None)
    _define(library, "mla_decode_kvcache(Tensor! out, Tensor query, Tensor kv_cache, float scale, "
                     "Tensor block_tables, Tensor seq_lens) -> ()", mla_decode)
    _define(library, "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, "
                     "Tensor cos_sin_cache, bool is_neox) -> ()", rotate)
    torch.cpu._is_amx_tile_supported = lambda: False
    torch.cpu._is_avx512_bf16_supported = lambda: False


def _define(library: torch.library.Library, schema: str, function: object) -> None:
    name = schema.split("(")[0]
    if not hasattr(torch.ops._C, name):
        library.define(schema)
        library.impl(name, function, "CompositeExplicitAutograd")


def rotate(positions: Tensor, query: Tensor, key: Tensor | None, head_size: int, cos_sin_cache: Tensor,
           is_neox: bool) -> None:
    """Rotary embedding of [rows, heads * head_size] in place; a row of the cache is cosines, then sines."""
    cos, sin = (part.unsqueeze(1) for part in cos_sin_cache[positions.flatten()].chunk(2, dim=-1))
    for tensor in (query, key):
        if tensor is None:
            continue
        heads = tensor.view(positions.numel(), -1, head_size)[..., : 2 * cos.shape[-1]]
        halves = heads.unflatten(-1, (2, -1) if is_neox else (-1, 2)).unbind(-2 if is_neox else -1)
        first, second = (half.clone() for half in halves)
        halves[0].copy_(first * cos - second * sin)
        halves[1].copy_(second * cos + first * sin)


def mla_decode(out: Tensor, query: Tensor, kv_cache: Tensor, scale: float, block_tables: Tensor,
               seq_lens: Tensor) -> None:
    """Attention of absorbed queries [rows, heads, row] over a paged cache [blocks, block_size, row] into `out`."""
    block_size, width = kv_cache.shape[1], out.shape[-1]
    for row, length in enumerate(seq_lens.tolist()):
        tokens = torch.arange(length)
        blocks = block_tables[row, tokens // block_size].long()
        keys = kv_cache[blocks, tokens % block_size].float()
        weights = (query[row].float() @ keys.T * scale).softmax(-1)
        out[row] = (weights @ keys[:, :width]).to(out.dtype)
