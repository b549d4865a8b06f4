"""vLLM's objects as the runtime's host: its groups, its forward context, its attention, its caches."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from vllm.distributed import get_tp_group
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.models.kimi_k3.amd import linear

from ..runtime import layers
from ..runtime.host import FinalSettings
from ..runtime.stop import EngineStopped
from .advice import Advice
from .shapes import decode_rows, groups_of

logger = logging.getLogger(f"vllm.{__name__}")

OUTPUT_RANK = 0
"""Whose output vLLM hands out, and whose errors it raises; those of other ranks it only logs."""


class VllmHost:
    """One tensor-parallel rank of vLLM, as `runtime.host.Host`."""

    def __init__(self, backbone: Any, vllm_config: Any) -> None:
        """`backbone`: the loaded `KimiLinearModel`."""
        group = get_tp_group()
        self.rank, self.ranks = group.rank_in_group, group.world_size
        self.group = group.cpu_group if group.world_size > 1 else None
        self._backbone, self._config = backbone, vllm_config
        self._is_gpu = next(backbone.parameters()).is_cuda
        self._kv_cache_config: Any = None
        self.publisher: Any = None
        self._rows, self._has_told = 0, False
        self._advice = Advice(vllm_config.scheduler_config.max_num_seqs * decode_rows(vllm_config))

    def _stop_early(self, decode: Any) -> None:
        """A rank that knows of a failure says so now: once the output rank's step has failed, vLLM gives no other step.

        The output rank raises, rather than to wait for the others in vLLM's own collectives: one may hang.
        """
        if self.rank != OUTPUT_RANK:
            self.tell(decode, EngineStopped(decode.executor.diagnosis([], [])))
            return
        stopped = decode.fail_stop.stopped()
        self.tell(decode, stopped)
        raise stopped

    def tell(self, decode: Any, stopped: EngineStopped) -> None:
        """This rank's account of a stop, once, in its log: vLLM shows a user the first rank's error alone."""
        if self._has_told:
            return
        self._has_told = True
        if self.publisher is not None:
            self.publisher.stop(decode.executor.failed_waits())
        logger.error("%s", stopped)
        for line in (*stopped.details, f"hint: {stopped.hint}"):
            logger.error("rank %d: %s", self.rank, line)

    def see_step(self, rows: int) -> None:
        """A forward of `rows` rows begins."""
        self._rows = rows

    def see_caches(self, kv_cache_config: Any) -> None:
        """vLLM is about to bind these caches."""
        self._kv_cache_config = kv_cache_config

    def forward_context(self) -> Any:
        """vLLM's, None outside of one."""
        return get_forward_context() if is_forward_context_available() else None

    def is_capturing(self) -> bool:
        """Never without a GPU, whose driver must not be asked for then."""
        return self._is_gpu and torch.cuda.is_current_stream_capturing()

    def stream(self) -> int | None:
        """The current one of this thread; None without a GPU."""
        return torch.cuda.current_stream().cuda_stream if self._is_gpu else None

    def attention_half(self, layer: int, positions: Tensor, prefix: Tensor, blocks: Tensor,
                       delta: Tensor | None) -> Tensor:
        """vLLM's AttnRes, which adds `delta` to `prefix` in place, and its MLA up to the output projection's input."""
        own = self._backbone.layers[layer]
        hidden = linear._apply_attn_res(
            prefix, blocks, own.self_attention_res_proj, own.self_attention_res_norm, own.prev_valid_blocks,
            delta=delta, output_norm=own.input_layernorm, quant_key=own.self_attn.get_input_quant_key())
        return own.self_attn.mla_attn(positions, hidden, skip_o_proj=True).contiguous()

    def state_groups(self) -> Mapping[str, int]:
        """As vLLM has put the KDA layers into cache groups, those without one left out of the count."""
        return groups_of(self._kv_cache_config, set(layers.kda_names(self._backbone).values()))

    def final_settings(self) -> FinalSettings:
        """As they are by now."""
        mode = self._config.compilation_config.cudagraph_mode
        return FinalSettings(interleave=self._config.parallel_config.cp_kv_cache_interleave_size,
                             decode_graphs="NONE" if mode is None else mode.decode_mode().name)

    def outputs_read(self) -> list[int]:
        """vLLM numbers auxiliary hidden states from 1: number n is layer n - 1's output, and 0 the embedding."""
        return [number - 1 for number in self._backbone.aux_hidden_state_layers if number > 0]

    def after_step(self, decode: Any) -> None:
        """The votes, then counters for the operator. Raises EngineStopped on every rank that is still there."""
        try:
            decode.after_step()
        except EngineStopped as stopped:
            self.tell(decode, stopped)
            raise
        if decode.executor.has_failed():
            self._stop_early(decode)
        counters = decode.counters()
        self._advice.look(self._rows, counters)
        if self.publisher is not None:
            self.publisher.publish(counters, decode.runner.engine.next_step(self.rank) - 1)
