"""The whole model on all ranks at once: embedding, layers, final mix, head; prefill and verify steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from . import attn_res, kda, mla, moe, situ
from .bf16 import all_reduce, bf, dot, rms_norm
from .mla import KvDtype
from .state import ModelState, Prefill, Stream, VerifyStep
from .weights import RankWeights

Trace = Callable[[int, str, object], None]
"""Called with (layer, stage, value): the value a tensor, or a list with one per rank."""


class Model:
    """Kimi-K3 over `weights` of rank 0, 1, ...; deterministic, and a row does not depend on what shares its step."""

    def __init__(self, weights: Sequence[RankWeights], trace: Trace | None = None) -> None:
        """Keeps `weights`; `trace`, if given, sees every stage's output."""
        self.weights = list(weights)
        self.geometry = weights[0].geometry
        self.shard = weights[0].shard
        self.trace = trace or (lambda layer, stage, value: None)

    def embed(self, tokens: Tensor) -> Tensor:
        """bf16 [S, H] of token ids [S]: every rank holds a slice of the vocabulary."""
        return torch.cat([w.top["embed_tokens.weight"] for w in self.weights])[tokens.to(torch.int64)]

    def begin(self, tokens: Tensor) -> Stream:
        """The stream before layer 0; blocks are NaN, as reading one before it is written is an error."""
        prefix = self.embed(tokens)
        blocks = torch.full((prefix.shape[0], self.geometry.num_blocks, self.geometry.hidden), torch.nan)
        return Stream(prefix, bf(blocks), None)

    def run_layers(self, stream: Stream, step: VerifyStep | Prefill, state: ModelState, layers: Iterable[int]) -> None:
        """Advances `stream` and `state` through `layers`."""
        for layer in layers:
            cores = self.attention_half(layer, stream, step, state)
            self.mlp_half(layer, stream, cores)

    def attention_half(self, layer: int, stream: Stream, step: VerifyStep | Prefill, state: ModelState) -> list[Tensor]:
        """Attention seam, block write, attention: o_proj's input bf16 [S, P] of every rank (numerics §3, §4, §6)."""
        g = self.geometry
        stream.prefix = attn_res.advance_prefix(stream.prefix, stream.delta)
        stream.delta = None
        if g.is_block_write(layer):
            stream.blocks[:, layer // g.attn_res_block_size] = stream.prefix
        x = self._seam(layer, "self_attention_res", "input_layernorm", stream, g.prev_valid_blocks(layer))
        cores = (self._kda if g.layer_kind(layer) == "kda" else self._mla)(layer, x, step, state)
        self.trace(layer, "core", cores)
        return cores

    def mlp_half(self, layer: int, stream: Stream, cores: Sequence[Tensor]) -> None:
        """o_proj, MLP seam, MLP: leaves the layer's output as `stream.delta` (numerics §5)."""
        g = self.geometry
        partials = [
            kda.o_proj_partial(core, w.layers[layer]["self_attn.o_proj.weight"])
            for core, w in zip(cores, self.weights, strict=True)
        ]
        attn = all_reduce(partials)
        self.trace(layer, "o_proj", partials)
        self.trace(layer, "attn", attn)
        stream.prefix = attn if g.is_block_write(layer) else attn_res.advance_prefix(stream.prefix, attn)
        x = self._seam(layer, "mlp_res", "post_attention_layernorm", stream, g.mlp_valid_blocks(layer))
        stream.delta = self._dense(layer, x) if g.is_dense(layer) else self._moe(layer, x)
        self.trace(layer, "delta", stream.delta)

    def final_mix(self, stream: Stream) -> Tensor:
        """h bf16 [S, H]: the last mix, without a norm; what a drafter sees (numerics §3)."""
        prefix = attn_res.advance_prefix(stream.prefix, stream.delta)
        source = attn_res.sources(prefix, stream.blocks, self.geometry.num_blocks)
        top = self.weights[0].top
        norm, proj = top["output_attn_res_norm.weight"], top["output_attn_res_proj.weight"]
        return attn_res.seam(source, norm, proj, None, self.geometry.rms_eps).x

    def logits(self, h: Tensor) -> Tensor:
        """float32 [S, vocab] of `h` bf16 [S, H]: final RMSNorm and the head, every rank a slice of the vocabulary."""
        x = rms_norm(h, self.weights[0].top["norm.weight"], self.geometry.rms_eps)
        return torch.cat([dot(x, w.top["lm_head.weight"]) for w in self.weights], -1)

    def prefill(self, tokens: Tensor, prompt: Prefill, state: ModelState) -> Tensor:
        """Runs a prompt int [T]; logits float32 [T, vocab]. Leaves states where the first verify step looks."""
        stream = self.begin(tokens)
        self.run_layers(stream, prompt, state, range(self.geometry.num_layers))
        return self.logits(self.final_mix(stream))

    def verify_step(self, tokens: Tensor, step: VerifyStep, state: ModelState) -> Tensor:
        """Runs tokens int [R, q]; logits float32 [R, q, vocab]. Stores a state per token (numerics §4.4)."""
        stream = self.begin(tokens.flatten())
        self.run_layers(stream, step, state, range(self.geometry.num_layers))
        return self.logits(self.final_mix(stream)).unflatten(0, tokens.shape)

    def _seam(self, layer: int, name: str, out_norm: str, stream: Stream, num_blocks: int) -> Tensor:
        w = self.weights[0].layers[layer]
        source = attn_res.sources(stream.prefix, stream.blocks, num_blocks)
        mix = attn_res.seam(
            source, w[f"{name}_norm.weight"], w[f"{name}_proj.weight"], w[f"{out_norm}.weight"], self.geometry.rms_eps
        )
        self.trace(layer, f"{name}_seam", mix)
        return mix.x

    def _kda(self, layer: int, x: Tensor, step: VerifyStep | Prefill, state: ModelState) -> list[Tensor]:
        cores = []
        for w, rank_state in zip(self.weights, state.kda[layer], strict=True):
            weights = w.layers[layer]
            proj = kda.in_proj(x, weights["self_attn.in_proj_qkvgfab.weight"])
            if isinstance(step, Prefill):
                window, start = kda.empty_start(self.shard, 1)
                core = kda.kda_core(proj, weights, self.shard, window, start, keep_states=False)
                kda.store_prefill(rank_state, core, step.slot(layer))
            else:
                indices = step.indices(layer)
                window, start, null = kda.start_states(rank_state, indices, step.num_accepted)
                core = kda.kda_core(proj, weights, self.shard, window, start, null)
                kda.store_states(rank_state, core, indices, null)
            cores.append(core)
        self.trace(layer, "kda_core", cores)
        return [kda.gated_norm(c.gated, c.square_sums, self.geometry.o_norm_eps) for c in cores]

    def _mla(self, layer: int, x: Tensor, step: VerifyStep | Prefill, state: ModelState) -> list[Tensor]:
        cache = state.mla[layer]
        if isinstance(step, Prefill):
            token_slots, mapping = [step.token_slots], step.token_slots
        else:
            token_slots = step.token_slots
            mapping = step.latent_slots(x.shape[0] // len(token_slots))
        fronts = [mla.mla_front(x, w.layers[layer], self.shard) for w in self.weights]
        cache.store(fronts[0].latent, mapping)
        self.trace(layer, "mla_front", fronts)
        return [
            mla.mla_core(front, cache, w.layers[layer], self.shard, token_slots)
            for front, w in zip(fronts, self.weights, strict=True)
        ]

    def _dense(self, layer: int, x: Tensor) -> Tensor:
        return all_reduce([situ.dense_partial(x, w.layers[layer], self.geometry) for w in self.weights])

    def _moe(self, layer: int, x: Tensor) -> Tensor:
        g, ranks = self.geometry, [(w, w.layers[layer]) for w in self.weights]
        # Router and latent are all-gathers of slices that each rank computes from its replicated copy.
        logits = torch.cat([moe.router_logits(x, t["mlp.gate.weight"][w.router_rows]) for w, t in ranks], -1)
        latent = torch.cat(
            [moe.latent_down(x, t["mlp.routed_expert_down_proj.weight"][w.latent_rows]) for w, t in ranks], -1
        )
        first = ranks[0][1]
        picks = moe.select_experts(logits, first["mlp.gate.e_score_correction_bias"], g.top_k)
        quantised = moe.quantise_latent(latent)
        hidden = [moe.expert_hidden(quantised, picks.ids, w.w13(layer), g) for w, _ in ranks]
        down = [moe.expert_down(h.quantised, picks, w.w2(layer)) for h, (w, _) in zip(hidden, ranks, strict=True)]
        z = moe.latent_reduce([d.y for d in down])
        zn = moe.latent_norm(z, first["mlp.routed_expert_norm.weight"], g.rms_eps)
        shared = [situ.shared_hidden(x, t, g) for _, t in ranks]
        shared_down = [situ.shared_down_partial(s, t) for s, (_, t) in zip(shared, ranks, strict=True)]
        up = [moe.up_partial(zn, s, t, self.shard, w.rank) for s, (w, t) in zip(shared_down, ranks, strict=True)]
        stages = (
            ("router_logits", logits), ("latent", latent), ("picks", picks), ("quantised_latent", quantised),
            ("expert_hidden", hidden), ("expert_down", down), ("z", z), ("zn", zn), ("shared_hidden", shared),
            ("shared_down", shared_down), ("up", up),
        )
        for stage, value in stages:
            self.trace(layer, stage, value)
        return moe.final_sum(up)


def greedy_generate(model: Model, prompt: Tensor, num_tokens: int, kv_dtype: KvDtype = "fp8") -> tuple[Tensor, Tensor]:
    """`num_tokens` greedy tokens after `prompt` int [T], one a step: ids int64 [n] and logits float32 [n, vocab]."""
    length = prompt.shape[0]
    state = ModelState.allocate(model.geometry, len(model.weights), state_slots=2, kv_slots=length + num_tokens,
                                max_q=1, kv_dtype=kv_dtype)
    rows = [model.prefill(prompt, Prefill(1, torch.arange(length)), state)[-1]]
    one = torch.ones(1, dtype=torch.int32)
    while len(rows) < num_tokens:
        step = VerifyStep(one[:, None], one, [torch.arange(length + len(rows))])
        rows.append(model.verify_step(greedy(rows[-1]).reshape(1, 1), step, state)[0, 0])
    logits = torch.stack(rows)
    return greedy(logits), logits


def greedy(logits: Tensor) -> Tensor:
    """int64 [...]: the largest logit's id of float32 [..., vocab], the lowest id of equals."""
    return logits.argmax(-1)
