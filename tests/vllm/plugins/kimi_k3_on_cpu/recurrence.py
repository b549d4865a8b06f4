"""Kimi's delta attention and AttnRes in torch: the interpreter takes a minute for them, and its `dot` of bf16 is wrong.

The replaced names are looked up in their modules at each call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def install() -> None:
    """Puts the functions below in the place of the kernels."""
    import vllm.models.kimi_k3.amd.kda as kda
    import vllm.models.kimi_k3.amd.linear as linear

    kda.fused_recurrent_kda = verify
    kda.fused_recurrent_kda_packed_decode = decode
    kda.chunk_kda_prefill = prefill
    linear.attn_res = attn_res


def _tokens(state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, keep: Any) -> Tensor:
    """The recurrence over float32 [T, heads, dim] from `state` [heads, value, key], which it changes; `keep` gets the
    state behind each token.
    """
    out = torch.empty_like(v)
    for t in range(q.shape[0]):
        state *= decay[t, :, None, :]
        change = (v[t] - (state * k[t, :, None, :]).sum(-1)) * beta[t, :, None]
        state += change[..., None] * k[t, :, None, :]
        out[t] = (state * q[t, :, None, :]).sum(-1)
        keep(t, state)
    return out


def _inputs(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor, a_log: Tensor, bias: Tensor,
            lower_bound: float) -> tuple[Tensor, ...]:
    """Float32 [T, heads, dim] of q and k, normalised, of v, of the decays, and [T, heads] of the write strengths."""
    q, k, v, gate = (part.float() for part in (q, k, v, gate))
    heads, dim = q.shape[-2:]
    q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * dim**-0.5
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    speed = a_log.float().flatten()[:heads].exp().view(heads, 1)
    decay = torch.exp(lower_bound * torch.sigmoid(speed * (gate + bias.float().view(heads, dim))))
    return q, k, v, decay, beta.float().sigmoid()


def verify(*, q: Tensor, k: Tensor, v: Tensor, raw_g: Tensor, raw_beta: Tensor, A_log: Tensor, dt_bias: Tensor,
           lower_bound: float, initial_state: Tensor, cu_seqlens: Tensor, ssm_state_indices: Tensor,
           num_accepted_tokens: Tensor | None = None, uniform_sequence_length: int | None = None,
           out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Rows of requests that verify drafts: starts behind the last accepted token, keeps the state behind each row."""
    out = torch.empty_like(v) if out is None else out
    ends, slots = cu_seqlens.tolist(), ssm_state_indices.view(cu_seqlens.shape[0] - 1, -1).tolist()
    accepted = [1] * len(slots) if num_accepted_tokens is None else num_accepted_tokens.tolist()
    for request, own in enumerate(slots):
        rows = slice(ends[request], ends[request + 1])
        start = own[accepted[request] - 1]
        if start <= 0:
            out[0, rows] = 0
            continue

        def keep(t: int, state: Tensor, own: list[int] = own) -> None:
            if own[t] > 0:
                initial_state[own[t]] = state

        parts = _inputs(*(part[0, rows] for part in (q, k, v, raw_g, raw_beta)), A_log, dt_bias, lower_bound)
        out[0, rows] = _tokens(initial_state[start].clone(), *parts, keep).to(out.dtype)
    return out, initial_state


def decode(*, mixed_qkv: Tensor, raw_g: Tensor, raw_beta: Tensor, A_log: Tensor, dt_bias: Tensor, lower_bound: float,
           initial_state: Tensor, state_indices: Tensor) -> tuple[Tensor, Tensor]:
    """One token a request."""
    rows, (heads, dim) = mixed_qkv.shape[0], raw_g.shape[-2:]
    q, k, v = (part.reshape(1, rows, heads, dim) for part in mixed_qkv.chunk(3, dim=-1))
    return verify(q=q, k=k, v=v, raw_g=raw_g, raw_beta=raw_beta, A_log=A_log, dt_bias=dt_bias,
                  lower_bound=lower_bound, initial_state=initial_state, cu_seqlens=torch.arange(rows + 1),
                  ssm_state_indices=state_indices[:rows])


def prefill(*, q: Tensor, k: Tensor, v: Tensor, raw_g: Tensor, raw_beta: Tensor, A_log: Tensor, g_bias: Tensor,
            lower_bound: float, state_cache: Tensor, state_indices: Tensor, has_initial_state: Tensor,
            cu_seqlens: Tensor, out: Tensor | None = None, **ignored: Any) -> tuple[Tensor, None]:
    """Prompts, from their state or from nothing."""
    out = torch.empty_like(v) if out is None else out
    ends = cu_seqlens.tolist()
    for request, slot in enumerate(state_indices.tolist()[: len(ends) - 1]):
        rows = slice(ends[request], ends[request + 1])
        state = state_cache[slot].clone() if has_initial_state[request] else torch.zeros_like(state_cache[slot])
        parts = _inputs(*(part[0, rows] for part in (q, k, v, raw_g, raw_beta)), A_log, g_bias, lower_bound)
        out[0, rows] = _tokens(state, *parts, lambda t, state: None).to(out.dtype)
        state_cache[slot] = state
    return out, None


def attn_res(prefix: Tensor, delta: Tensor | None, blocks: Tensor, norm_weight: Tensor, qk_weight: Tensor,
             output_norm_weight: Tensor | None, num_blocks: int, block_write_idx: int, eps: float,
             output_norm_eps: float, *, quant_dtype: torch.dtype | None = None) -> Tensor:
    """A softmax mix of the blocks and of the prefix, to which `delta` is added in place; normed where wanted."""
    assert quant_dtype is None
    if delta is not None:
        prefix += delta
    if block_write_idx >= 0:
        blocks[:, block_write_idx] = prefix
    sources = torch.cat((blocks[:, :num_blocks], prefix[:, None]), dim=1).float()
    normed = sources * torch.rsqrt((sources * sources).mean(-1, keepdim=True) + eps)
    weights = (normed * (norm_weight.float() * qk_weight.float())).sum(-1).softmax(-1)
    mix = (weights[..., None] * sources).sum(1)
    if output_norm_weight is not None:
        mix = mix * torch.rsqrt((mix * mix).mean(-1, keepdim=True) + output_norm_eps) * output_norm_weight.float()
    return mix.to(prefix.dtype)
