"""vLLM's model state of Kimi-K3, with our eyes on its caches and graphs, and our guard behind its sampler."""

from __future__ import annotations

from typing import Any

import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.models.kimi_k3.amd.specialized_decode.model_state import KimiK3ModelState
from vllm.v1.worker.gpu.async_utils import AsyncOutput
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from .output import GuardedMask, GuardedSampler, Objection


class SpecializedModelState(KimiK3ModelState):
    """Upstream's builds the decode and prepares it for every binding of the caches."""

    graph_metadata: dict[str, Any] | None = None
    """The metadata that has just been made for a FULL graph."""

    def prepare_attn(self, input_batch: Any, cudagraph_mode: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """vLLM's metadata of a step, or of a capture."""
        metadata = super().prepare_attn(input_batch, cudagraph_mode, *args, **kwargs)
        self.graph_metadata = metadata if cudagraph_mode == CUDAGraphMode.FULL else None
        return metadata

    def prepare_inputs(self, input_batch: Any, req_states: Any) -> dict[str, Any]:
        """vLLM's inputs of a step, and of no capture: behind metadata for a FULL graph, that is replayed next."""
        metadata, self.graph_metadata = self.graph_metadata, None
        decode = self.language_model.specialized_decode
        if metadata is not None and decode is not None:
            self.language_model.specialized_host.see_step(input_batch.num_tokens_after_padding)
            decode.begin_replay(metadata, input_batch.num_tokens_after_padding, input_batch.num_tokens)
        return super().prepare_inputs(input_batch, req_states)

    def initialize_kv_cache(self, kv_cache_config: Any, block_tables: Any) -> None:
        """Called for each binding; the cache groups are read off its configuration."""
        self.language_model.specialized_host.see_caches(kv_cache_config)
        super().initialize_kv_cache(kv_cache_config, block_tables)

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """vLLM's samplers behind our guard. Raises RuntimeError where vLLM would hand out tokens past it."""
        require_guard(self.device)
        stock = super().custom_sampler(sampler)
        if stock is None:
            stock = sampler, self._rejection_sampler(sampler)
        own, rejection = stock
        return (GuardedSampler(own, self._copy_alarms),
                None if rejection is None else GuardedSampler(rejection, self._copy_alarms))

    def _rejection_sampler(self, sampler: Any) -> Any:
        """As vLLM makes it for a sampler of its own; watermarks, which it would also give it, are refused."""
        if self.vllm_config.speculative_config is None:
            return None
        from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

        return RejectionSampler(sampler, self.vllm_config.speculative_config, self.device)

    def _copy_alarms(self) -> Objection:
        """The objection is asked for by the thread that resolves outputs, while the next step may be under way."""
        decode, host = self.language_model.specialized_decode, self.language_model.specialized_host
        may_leave = decode.fail_stop.copy_alarms()

        def objection() -> BaseException | None:
            if may_leave():
                return None
            stopped = decode.fail_stop.stopped()
            host.tell(decode, stopped)
            return stopped

        return objection


class _HeldBackError(RuntimeError):
    """What a fake output raises."""


def require_guard(device: torch.device) -> None:
    """Raises RuntimeError unless an output of a failed step raises before vLLM hands out its tokens."""
    one = torch.ones(1, dtype=torch.int32, device=device)
    output = SamplerOutput(
        sampled_token_ids=one.view(1, 1), logprobs_tensors=None, num_nans=None, num_sampled=one,
        num_rejected=torch.zeros_like(one), sampling_mask_tensors=GuardedMask(lambda: _HeldBackError, None))
    try:
        _resolve(output, device)
    except _HeldBackError:
        return
    raise RuntimeError("Kimi-K3 specialized decode: this vLLM hands out tokens without asking for their sampling mask, "
                       "so those of a failed step could leave (decode_backend=auto runs vLLM's decode)")


def _resolve(output: SamplerOutput, device: torch.device) -> None:
    """What a worker does with a step's output."""
    from vllm.v1.outputs import ModelRunnerOutput

    current = torch.cuda.current_stream(device)
    AsyncOutput(
        model_runner_output=ModelRunnerOutput(req_ids=["guard"], req_id_to_index={"guard": 0}),
        sampler_output=output, num_sampled_tokens=output.num_sampled, main_stream=current, copy_stream=current,
        check_ep_fault=False, pending_aux_output=None).get_output()
