"""What the residual stream must be at every seam of a step, from its start and the pairs that ranks pushed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kimi_k3_specdec.decoding.exchanges import PREFIX_SOURCE
from kimi_k3_specdec.reference.attn_res import advance_prefix
from kimi_k3_specdec.reference.bf16 import all_reduce

from .world import Step, World


@dataclass
class Seam:
    """The sources of one mix."""

    layer: int
    half: str
    """`attention` or `mlp`."""
    prefix: Tensor
    """bf16 [S, H], as it is stored and mixed."""
    blocks: Tensor
    """bf16 [S, n, H]."""

    @property
    def sources(self) -> Tensor:
        """bf16 [S, n + 1, H]: the prefix is the last."""
        return torch.cat((self.blocks, self.prefix[:, None]), 1)

    @property
    def lanes(self) -> list[int]:
        """Where a dots task publishes each source's dot."""
        return [*range(self.blocks.shape[1]), PREFIX_SOURCE]


@dataclass
class Recorded:
    """One step and what memory held around it."""

    world: World
    step: Step
    before: dict[str, Tensor]
    """`World.memory`."""
    after: dict[str, Tensor]
    seams: list[Seam]
    prefix: Tensor
    """bf16 [S, H]: what memory must hold at the end."""
    blocks: Tensor
    """bf16 [S, num_blocks, H]."""
    delta: Tensor
    """bf16 [S, H]."""
    states: dict
    """By layer, then rank: a copy of the `KdaState` before the step."""

    def halves(self, half: str) -> list[Seam]:
        """All seams of one half."""
        return [seam for seam in self.seams if seam.half == half]


def record(world: World, *runs: tuple[int, int], has_delta: bool = True) -> Recorded:
    """Runs one step and follows the stream through it."""
    rows, g = world.shape.rows, world.geometry
    prefix, blocks = world.prefix[0][:rows].clone(), world.blocks[0].clone()
    delta = world.delta[0][:rows].clone() if has_delta else None
    before = world.memory()
    states = {layer: [(own.state.conv.clone(), own.state.recurrent.clone()) for own in ranks]
              for layer, ranks in world.states.items()}
    step = world.run(*runs, has_delta=has_delta)
    seams = []
    for layer in world.layers:
        valid, writes = g.prev_valid_blocks(layer), g.is_block_write(layer)
        if layer in world.states:
            prefix = advance_prefix(prefix, delta)
            if writes:
                blocks[:, layer // g.attn_res_block_size] = prefix
            seams.append(Seam(layer, "attention", prefix, blocks[:, :valid].clone()))
        attention = all_reduce(list(step.tensors(layer, "attention_out")[0]))
        prefix = attention if writes else advance_prefix(prefix, attention)
        seams.append(Seam(layer, "mlp", prefix, blocks[:, : valid + writes].clone()))
        delta = all_reduce(list(step.tensors(layer, "output")[0]))
    return Recorded(world, step, before, world.memory(), seams, prefix, blocks, delta, states)
