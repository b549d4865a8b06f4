"""FULL graphs over the fake HIP library with vLLM's own metadata: `python replays.py CHECKPOINT LIBRARY OUT.json`.

vLLM's model state and KDA metadata builders make what a step, a capture and a replay read; `SpecializedModelState`
announces the replay, as in an engine; the forward context is vLLM's. The graphs are captured and replayed on the HIP
library; the eager steps to compare with run in the emulator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import drive
import numpy as np
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parent.parent))

from vllm import EngineArgs  # noqa: E402
from vllm.config.compilation import CUDAGraphMode  # noqa: E402
from vllm.forward_context import get_forward_context, set_forward_context  # noqa: E402
from vllm.models.kimi_k3.amd.kda_metadata import KimiK3ROCmKDABackend  # noqa: E402
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MambaSpec  # noqa: E402
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers  # noqa: E402
from vllm.v1.worker.utils import AttentionGroup  # noqa: E402

from kimi_k3_specdec.decoding import fake_hip  # noqa: E402
from kimi_k3_specdec.decoding.backbone import layer_name  # noqa: E402
from kimi_k3_specdec.decoding.slots import NUM_GROUPS, group_of  # noqa: E402
from kimi_k3_specdec.reference.geometry import NANO  # noqa: E402
from kimi_k3_specdec.vllm_plugin.state import SpecializedModelState  # noqa: E402
from runtime import graphs  # noqa: E402
from runtime.graphs import Batch, Model, compare, draw  # noqa: E402

REQUESTS, Q, STEPS = 4, 4, 24
CPU = torch.device("cpu")
NO_BLOCK = 0x7FFFFFFF
"""Behind a request's blocks, and in the rows of no request: nobody may read it."""


def configuration(checkpoint: str) -> Any:
    """vLLM's, with the graphs that a GPU would have."""
    case = {"model": checkpoint, "drafts": Q - 1, "arguments": {"max_num_seqs": REQUESTS}}
    config = EngineArgs(**drive.options(case)).create_engine_config()
    config.compilation_config.cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY
    config.compilation_config.max_cudagraph_capture_size = REQUESTS * Q
    return config


class VllmMetadata:
    """`graphs.Metadata` by vLLM's model state and builders."""

    def __init__(self, config: Any) -> None:
        """A cache group, and a builder, for each of the model's groups of KDA layers."""
        self.config, self.buffers = config, InputBuffers(REQUESTS, REQUESTS * Q, CPU)
        self.tables, self.num_slots = graphs.slot_tables(REQUESTS, Q, seed=3)
        shard = NANO.shard(1)
        shapes = (Q + 2, shard.conv_channels), (shard.heads, NANO.head_dim, NANO.head_dim)
        spec = MambaSpec(block_size=128, shapes=shapes, dtypes=(torch.bfloat16, torch.float32),
                         num_speculative_blocks=Q - 1)
        kda = [layer for layer in graphs.LAYERS if NANO.layer_kind(layer) == "kda"]
        names = [[layer_name(layer) for layer in kda if group_of(layer) == index] for index in range(NUM_GROUPS)]
        self.groups = KVCacheConfig(num_blocks=self.num_slots, kv_cache_tensors=[],
                                    kv_cache_groups=[KVCacheGroupSpec(own, spec) for own in names])
        self.attention = []
        for index, own in enumerate(names):
            group = AttentionGroup(KimiK3ROCmKDABackend, own, spec, index)
            group.create_metadata_builders(config, CPU)
            self.attention.append([group] if own else [])
        self.state = self._state()

    def _state(self) -> Any:
        """The members that metadata needs, without a model."""
        made: Any = SpecializedModelState.__new__(SpecializedModelState)
        made.vllm_config, made.cache_config, made.model_config = (
            self.config, self.config.cache_config, self.config.model_config)
        made.num_accepted_tokens_gpu = torch.ones(REQUESTS, dtype=torch.int32)
        made._align_mode, made.recoverssm, made.rope_state = False, None, None
        return made

    def memory(self) -> list[Tensor]:
        """The builders' buffers."""
        builders = [group.get_metadata_builder() for own in self.attention for group in own]
        return [tensor for builder in builders for tensor in (builder.spec_state_indices_tensor,
                                                              builder.num_accepted_tokens)]

    def _made(self, batch: InputBatch, mode: CUDAGraphMode, requests: list[int], *,
              for_capture: bool) -> dict[str, Any]:
        tables = []
        for table in self.tables:
            blocks = torch.full((batch.num_reqs_after_padding, Q + 3), NO_BLOCK, dtype=torch.int32)
            blocks[: len(requests), :Q] = table[requests]
            if for_capture:
                blocks.zero_()
            tables.append(blocks)
        slots = torch.zeros(NUM_GROUPS, batch.num_tokens_after_padding, dtype=torch.int64)
        return self.state.prepare_attn(batch, mode, tuple(tables), slots, self.attention, self.groups,
                                       for_capture=for_capture)

    def _input(self, batch: Batch, places: int) -> InputBatch:
        """vLLM's batch of these requests, padded to `places`."""
        live, made = len(batch.requests), InputBatch.make_dummy(places, places * Q, self.buffers, is_padding=False)
        starts = np.full(places + 1, live * Q, dtype=np.int32)
        starts[: live + 1] = np.arange(live + 1) * Q
        lengths = torch.zeros(places, dtype=torch.int32)
        lengths[:live] = 40 + Q
        self.state.num_accepted_tokens_gpu[batch.requests] = torch.tensor(batch.accepted, dtype=torch.int32)
        mapping = torch.tensor(batch.requests)
        return replace(
            made, req_ids=[f"request {number}" for number in batch.requests], num_reqs=live,
            idx_mapping=mapping, idx_mapping_np=mapping.numpy(), num_scheduled_tokens=np.full(live, Q, dtype=np.int32),
            num_tokens=live * Q, num_draft_tokens=live * (Q - 1),
            num_draft_tokens_per_req=np.full(live, Q - 1, dtype=np.int32), query_start_loc=torch.from_numpy(starts),
            query_start_loc_np=starts, seq_lens=lengths, seq_lens_cpu_upper_bound=lengths,
            num_computed_tokens_np=np.full(live, 40, dtype=np.int32), is_prefilling_np=np.zeros(live, dtype=np.bool_))

    def eager(self, batch: Batch) -> dict[str, Any]:
        """Of exactly the batch."""
        found = self._input(batch, len(batch.requests))
        return self._made(found, CUDAGraphMode.NONE, batch.requests, for_capture=False)

    def capture(self, width: int) -> dict[str, Any]:
        """As `prepare_inputs_to_capture` asks for it: no step's mode yet."""
        found = InputBatch.make_dummy(width // Q, width, self.buffers, max_query_len=Q)
        return self._made(found, CUDAGraphMode.NONE, [], for_capture=True)

    def announce(self, decode: Any, batch: Batch, width: int) -> None:
        """As `execute_model` does before a FULL graph: metadata, then inputs."""
        self.state.language_model = SimpleNamespace(
            specialized_decode=decode, specialized_host=SimpleNamespace(see_step=lambda rows: None))
        found = self._input(batch, width // Q)
        self._made(found, CUDAGraphMode.FULL, batch.requests, for_capture=False)
        assert self.state.prepare_inputs(found, None) == {}


class VllmModel(Model):
    """Steps within vLLM's forward context."""

    def forward_context(self) -> Any:
        """vLLM's."""
        return get_forward_context()

    def forward(self, metadata: Any, width: int) -> None:
        """As `execute_model` and captures run the model."""
        with set_forward_context(metadata, self.metadata.config, num_tokens=width,
                                 cudagraph_runtime_mode=CUDAGraphMode.NONE):
            super().forward(metadata, width)


def batches() -> Iterator[tuple[Batch, int | None]]:
    """Of one to four requests, with the width of any graph that holds them; every sixth is to run eagerly."""
    g = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        live = 1 + step % REQUESTS
        batch, width = draw(live, REQUESTS, Q, g), Q * int(torch.randint(live, REQUESTS + 1, (), generator=g))
        yield batch, None if step % 6 == 5 else width


def main() -> None:
    """Writes how many steps were compared, and what differed in which."""
    checkpoint, library, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    fake_hip.reset(library, 1, {})
    config = configuration(checkpoint)
    metadata = [VllmMetadata(config) for _ in range(2)]
    eager = VllmModel(metadata[0], REQUESTS, Q, metadata[0].num_slots)
    replayed = VllmModel(metadata[1], REQUESTS, Q, metadata[1].num_slots, library)
    for requests in range(1, REQUESTS + 1):
        replayed.capture(requests * Q)
    differences = compare(replayed, eager, batches())
    counters = replayed.decode.counters()
    replayed.close()
    eager.close()
    out.write_text(json.dumps({"steps": STEPS, "differences": differences, "counters": counters}))


if __name__ == "__main__":
    main()
