"""All checks of one launch, layer by layer in the order of the stages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...reference.attn_res import advance_prefix
from ...reference.bf16 import all_reduce
from ...reference.weights import RankWeights
from ..exchanges import LayerExchanges
from . import experts, kda, moe
from .kda import StateStep
from .layer import LayerCheck, Residual
from .seam import check_seam
from .verdicts import Verdicts


@dataclass
class RunRecord:
    """What a launch of layers first..last worked on, on all ranks."""

    first: int
    last: int
    requests: int
    before: Residual
    """The same on every rank."""
    cores: list[Tensor] | None
    """bf16 [S, P] by rank, where the run starts behind an MLA layer's attention."""
    after: list[Residual]
    """By rank; `delta` holds the last layer's output."""
    states: dict[int, list[StateStep]]
    """By KDA layer, then by rank."""
    exchanges: dict[int, LayerExchanges]


def check_run(record: RunRecord, weights: list[RankWeights], verdicts: Verdicts) -> None:
    """Raises StageDiffers at the first stage of the first layer that is not what it must be."""
    residual = record.before.clone()
    for layer in range(record.first, record.last + 1):
        kind = "whole" if layer in record.states else "ffn"
        check = LayerCheck(layer, kind, weights, record.exchanges[layer], residual, verdicts, record.requests)
        _check_layer(check, record.states.get(layer), record.cores if layer == record.first else None)
    _check_memory(record, residual, weights, verdicts)


def _check_layer(check: LayerCheck, states: list[StateStep] | None, cores: list[Tensor] | None) -> None:
    g, residual = check.geometry, check.residual
    if states is None:
        check.check_absent()
    else:
        residual.prefix = advance_prefix(residual.prefix, residual.delta)
        if g.is_block_write(check.layer):
            residual.blocks[:, check.layer // g.attn_res_block_size] = residual.prefix
        check_seam(check, "attention", g.prev_valid_blocks(check.layer))
        kda.check_in_proj(check)
        kda.check_kda(check, states)
    kda.check_o_proj(check, cores)
    attention = all_reduce(list(check.region("attention_out")[0][0]))
    residual.prefix = attention if g.is_block_write(check.layer) else advance_prefix(residual.prefix, attention)
    check_seam(check, "mlp", g.mlp_valid_blocks(check.layer))
    moe.check_moe_in(check)
    moe.check_route(check)
    experts.check_expert_hidden(check)
    experts.check_latent_out(check)
    moe.check_latent_z(check)
    moe.check_output(check)
    residual.delta = all_reduce(list(check.region("output")[0][0]))


def _check_memory(record: RunRecord, residual: Residual, weights: list[RankWeights], verdicts: Verdicts) -> None:
    """What the launch leaves in memory, on every rank, bit for bit: sums of equal pairs in rank order."""
    assert residual.delta is not None
    rows = torch.arange(residual.prefix.shape[0])
    for rank in range(len(weights)):
        after = record.after[rank]
        verdicts.exact("prefix", record.last, rank, after.prefix, residual.prefix)
        verdicts.exact("blocks", record.last, rank, after.blocks.flatten(1), residual.blocks.flatten(1), rows=rows)
        assert after.delta is not None
        verdicts.exact("delta", record.last, rank, after.delta, residual.delta)
