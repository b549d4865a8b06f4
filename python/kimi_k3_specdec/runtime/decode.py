"""The executor that vLLM's model calls: one decision per step, then launches inside vLLM's own layer loop.

Spec: runtime.md §2, §3. Rust decides, launches and keeps the books; this file reads tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import _native
from . import WHOLE, DecodeConfig, layers
from .guards import (
    CACHES,
    GEOMETRY,
    WEIGHTS,
    agree,
    attempt,
    bind,
    cache_reasons,
    check_model,
    state_group,
    weight_reasons,
)
from .host import Host
from .runner import TIMEOUT_SECONDS, Runner, RunnerOptions
from .staging import MetadataStaging, Registered, Staging
from .stop import FailStop

logger = logging.getLogger(__name__)

Residuals = tuple[Tensor, Tensor, Tensor]
"""Prefix bf16 [S, hidden], block bank bf16 [S, blocks, hidden], delta bf16 [S, hidden]."""

Layer = Callable[[Tensor, Tensor, Tensor, Tensor | None], Residuals]
"""What stands in for a decoder layer: called with positions, prefix, blocks and delta."""

GRAPH_MODES = {"NONE": 0, "PIECEWISE": 1, "FULL": 2}
NO_DICT, NO_FIRST_LAYER, NO_MASKS, VERIFY = range(4)
Counts = tuple[int, int, int, int, int | None]
NO_COUNTS: Counts = (0, 0, 0, 0, None)
Where = tuple[int, int]
"""Addresses of a cache group's slots and accepted counts."""


class Step:
    """A planned step of `width` rows. `layer(i)` stands in for decoder layer i, or is None: vLLM's own runs."""

    __slots__ = ("layer", "width")

    layer: Callable[[int], Layer | None]
    """What runs in place of the decoder layer of an index."""

    def __init__(self, width: int, stand_ins: Mapping[int, Layer]) -> None:
        """`stand_ins` by layer."""
        # Without a frame of Python's: it is asked for every layer of every step.
        self.width, self.layer = width, stand_ins.get


def _inside(positions: Tensor, prefix: Tensor, blocks: Tensor, delta: Tensor) -> Residuals:
    """A layer that an earlier one's launch has run already."""
    return prefix, blocks, delta


def _launch_of(decode: SpecializedDecode, index: int, layer: int, *, needs_core: bool) -> Layer:
    """The layer that begins a run: launches all of it. Prefix, blocks and delta are rewritten in place.

    `index`: of the run in the step; `needs_core`: it begins behind an MLA layer's attention, which vLLM runs.
    """
    attention_half, launch, known = decode.host.attention_half, decode.executor.launch, decode.residuals

    def run(positions: Tensor, prefix: Tensor, blocks: Tensor, delta: Tensor | None) -> Residuals:
        core_address, has_delta = 0, delta is not None
        if needs_core:
            # Kept until the launch is queued: nothing that is allocated before may take its memory.
            core = attention_half(layer, positions, prefix, blocks, delta)
            core_address, has_delta = core.data_ptr(), False
        out = torch.empty_like(prefix) if delta is None else delta
        if prefix is not known.prefix or blocks is not known.blocks or out is not known.delta:
            known.tell(decode.executor, prefix, blocks, out)
        launch(index, core_address, has_delta)
        return prefix, blocks, out

    return run


def _staged_launch_of(decode: SpecializedDecode, index: int, layer: int, held: Staging, *, needs_core: bool) -> Layer:
    """The same over memory that the emulator knows, where it runs at once."""
    executor, known = decode.executor, decode.residuals

    def run(positions: Tensor, prefix: Tensor, blocks: Tensor, delta: Tensor | None) -> Residuals:
        core, has_delta = None, delta is not None
        if needs_core:
            core, has_delta = decode.host.attention_half(layer, positions, prefix, blocks, delta), False
        held.fill(prefix, blocks, delta if has_delta else None, core)
        known.tell(executor, held.prefix, held.blocks, held.delta)
        executor.launch(index, held.core.data_ptr(), has_delta)
        decode.runner.wait()
        out = torch.empty_like(prefix) if delta is None else delta
        held.give(prefix, blocks, out)
        return prefix, blocks, out

    return run


class ToldResiduals:
    """The residuals that the executor was told of: all launches of a step have the same, so torch is asked once."""

    __slots__ = ("blocks", "delta", "prefix")

    def __init__(self) -> None:
        """None yet."""
        self.forget()

    def forget(self) -> None:
        """A step begins: tensors that are the same objects may have moved."""
        self.prefix = self.blocks = self.delta = None

    def tell(self, executor: Any, prefix: Tensor, blocks: Tensor, delta: Tensor) -> None:
        """From now on the launches of the step have these."""
        row_stride, block_stride, _ = blocks.stride()
        executor.set_residuals(prefix.data_ptr(), blocks.data_ptr(), row_stride, block_stride, delta.data_ptr())
        self.prefix, self.blocks, self.delta = prefix, blocks, delta


class SpecializedDecode:
    """Built once the weights are loaded, on every rank of the group at once."""

    def __init__(self, backbone: Any, config: DecodeConfig, host: Host, *, device: str = "emulator",
                 geometry: str = GEOMETRY, timeout_seconds: float = TIMEOUT_SECONDS, schedule_seed: int = 0,
                 tap: bool = False, library: Path | None = None) -> None:
        """`backbone`: vLLM's `KimiLinearModel` or anything with its attributes. `schedule_seed` and `tap`, whether
        stores into exchange regions are kept and can be faulty, are the emulator's; `library` is HIP's.

        Raises ValueError (weights that the kernels cannot read) or RuntimeError (memory, peers) on every rank.
        """
        self.backbone, self.config, self.host = backbone, config, host
        self._geometry = {"geometry": geometry, "ranks": host.ranks}
        agree(attempt(lambda: weight_reasons(backbone, **self._geometry)), host.group, WEIGHTS)
        self._checked = check_model(backbone, host.rank, **self._geometry)
        self.kinds = layers.own_kinds(backbone)
        self._names = layers.kda_names(backbone)
        self._first = next(iter(self._names), None)
        """The lowest KDA layer: its metadata decides each step."""
        options = RunnerOptions(geometry, host.rank, host.ranks, device, timeout_seconds, schedule_seed, tap, library)
        self.runner = Runner(options, host.group)
        self._metadata: MetadataStaging | None = None
        if self.runner.runs_on_host_memory:
            self._weights, self._caches = (Registered(self.runner.engine, host.rank) for _ in range(2))
            self._metadata = MetadataStaging(self.runner.engine, host.rank, config.widths[-1])
            self._register_weights()
        self._groups: dict[int, str] = {}
        self._told: dict[int, tuple[Any, tuple[int, int, int]]] = {}
        self._kv: Any = None
        self._kv_word = self._fixed_word = self._looked_at = 0
        tensors = [self._tensors(layer).values() for layer in self.kinds]
        self._pointers = [([tensor.data_ptr for tensor in own], [tensor.data_ptr() for tensor in own])
                          for own in tensors]
        """By layer, what gives its weights' addresses, and the addresses that were checked."""
        self._weights_device = next(iter(tensors[0])).device
        self._has_warned = False
        self._graphs: dict[int, tuple[int, list[Where]] | None] = {}
        """By width, what its captured graph is known by and where it reads metadata; None: vLLM's layers ran."""
        self.residuals = ToldResiduals()
        self._plan_anew()
        logger.info("Kimi-K3 specialized decode: %d layers in %d launches a step, widths %s; other steps run vLLM's "
                    "decode", len(self.kinds), len(self.executor.runs()), list(config.widths))

    def _plan_anew(self) -> None:
        """The executor from the device's step number on, and what stands in for the layers."""
        self.executor = self.runner.call(self._make_executor, "planning")
        self.fail_stop = FailStop(self.executor, self.runner, self._weights_device)
        self._steps = {width: Step(width, self._stand_ins(width)) for width in self.config.widths}

    def _make_executor(self) -> Any:
        executor = _native.Executor(
            self.runner.engine, self.host.rank, list(self.kinds), self.config.q, list(self.config.widths),
            list(self.host.outputs_read()), self.runner.options.timeout_seconds)
        for width in self.config.widths:
            # Nothing may be allocated or written inside a capture.
            self.runner.engine.prepare(width // self.config.q, self.config.q - 1)
        return executor

    def _stand_ins(self, width: int) -> dict[int, Layer]:
        """By layer, for steps of `width` rows."""
        out: dict[int, Layer] = {}
        staging = None
        if self.runner.runs_on_host_memory:
            dims = _native.geometry(self._geometry["geometry"], self.host.ranks)["dims"]
            staging = Staging(self.runner.engine, self.host.rank, width, dims)
        for index, (first, last) in enumerate(self.executor.runs()):
            out |= dict.fromkeys(range(first, last + 1), _inside)
            needs_core = self.kinds[first] != WHOLE
            out[first] = (_launch_of(self, index, first, needs_core=needs_core) if staging is None else
                          _staged_launch_of(self, index, first, staging, needs_core=needs_core))
        return out

    def _tensors(self, layer: int) -> dict[str, Tensor]:
        """A served layer's weights by descriptor field."""
        kind, found = self.kinds[layer], {}
        for field, _, path, only_kda in _native.LAYER_TENSORS:
            if kind == WHOLE or not only_kda:
                found[field] = layers.find(self.backbone.layers[layer], path)
        return found

    def _register_weights(self) -> None:
        """The emulator checks every access against what it was told of."""
        for layer in self.kinds:
            for field, tensor in self._tensors(layer).items():
                self._weights.add(tensor, f"{field} of layer {layer}")

    def _kv_key(self) -> Any:
        """What tells one binding of the caches from another: where the first KDA layer's states are."""
        if self._first is None:
            return None
        states = getattr(self.backbone.layers[self._first].self_attn, "kv_cache", None)
        if not isinstance(states, (list, tuple)) or len(states) != len(("conv", "recurrent")) or not states[1].numel():
            return None
        return states[1].data_ptr(), states[1].numel(), states[0].data_ptr()

    def prepare_kv(self) -> None:
        """Checks and binds the KDA states that vLLM has just bound; any number of times. Without states, steps are
        stock until the next call. Raises ValueError on every rank if any rank's caches cannot be used.
        """
        self._kv, self._graphs = None, {}
        self.executor.unbind()
        key = self._kv_key()
        if key is None:
            return
        self._read_final_settings()
        caches, num_spec = layers.kda_caches(self.backbone), self.config.q - 1
        agree(attempt(lambda: cache_reasons(caches, num_spec=num_spec, **self._geometry)), self.host.group, CACHES)
        groups = self.host.state_groups()
        # One layer of each group speaks for all of it.
        self._groups = {index: name for name, index in reversed(list(groups.items())) if name in caches}
        self._told = {}
        bound = bind(self._checked, self.backbone, caches, num_spec, groups)
        if self.runner.runs_on_host_memory:
            self._caches.clear()
            for name, states in caches.items():
                for state in states:
                    self._caches.add(state, f"states of {name}")
        self.runner.engine.bind_layers(self.host.rank, bound)
        self._kv_word, self._fixed_word = _native.fingerprint(list(key)), bound.fingerprint
        self.executor.bind(self._kv_word, self._fixed_word)
        self._kv = key

    def _read_final_settings(self) -> None:
        """What was read at the model's construction may have changed since."""
        final = self.host.final_settings()
        self.config = replace(self.config, interleave=final.interleave)
        if final.decode_graphs == "PIECEWISE" and not self._has_warned:
            self._has_warned = True
            logger.warning(_native.PIECEWISE_ONLY)

    def _fixed_now(self) -> int:
        """The fingerprint of the weights, or another number if one has moved; one layer a step is looked at."""
        layer = self._looked_at = (self._looked_at + 1) % len(self._pointers)
        ask, checked = self._pointers[layer]
        has_moved = [address() for address in ask] != checked
        return ~self._fixed_word & (1 << 64) - 1 if has_moved else self._fixed_word

    def plan(self, positions: Tensor, intermediate_tensors: Any) -> Step | None:
        """This step's plan, or None to run vLLM's layers; the same on every rank. Raises RuntimeError if vLLM re-bound
        its caches without `prepare_kv`.
        """
        self._follow_stream()
        self.residuals.forget()
        context, is_capture = self.host.forward_context(), self.host.is_capturing()
        mode, kind, counts, metadata = 0, NO_DICT, NO_COUNTS, None
        if context is not None:
            mode = GRAPH_MODES[getattr(context.cudagraph_runtime_mode, "name", "NONE")]
            metadata = context.attn_metadata
            if isinstance(metadata, dict):
                kind, counts = self._describe(metadata.get(self._names.get(self._first, "")))
        key = self._kv_key()
        word = self._kv_word if key == self._kv else _native.fingerprint(list(key or ()))
        width = positions.shape[-1]
        if kind == VERIFY and key is not None and width in self._steps:
            self._bind_metadata(metadata, counts)
        runs = self.executor.plan(
            width, has_intermediate_tensors=intermediate_tensors is not None, has_context=context is not None,
            graph_mode=mode, metadata=kind, counts=counts, kv=word, fixed=self._fixed_now(),
            is_capture=is_capture)
        if is_capture:
            self._graphs[width] = None if runs is None else (self.executor.last_graph(), self._where(metadata))
        return None if runs is None else self._steps[width]

    def begin_replay(self, metadata: Any, width: int, live_rows: int) -> None:
        """A graph of `width` rows, which was captured over the bound caches, is replayed next on the current stream.

        `metadata`: by layer name, as the forward context would have it, of a batch of `live_rows` padded to `width`.
        Raises RuntimeError on every rank where the graph would read other metadata, or `StepStopped`.
        """
        self._follow_stream()
        graph = self._graphs.get(width)
        if graph is None:
            self.executor.count_stock_replay(width)
            return
        number, where = graph
        if self._where(metadata) != where:
            raise RuntimeError(f"Kimi-K3 specialized decode: the metadata of a step of {width} rows is not where its "
                               "captured graph reads it (decode_backend=auto runs vLLM's decode)")
        self.executor.begin_replay(number, live_rows, self._kv_word, self._fixed_now())

    def _where(self, metadata: Any) -> list[Where]:
        """Where a step's metadata is, by cache group."""
        groups = (metadata[name] for _, name in sorted(self._groups.items()))
        return [(own.spec_state_indices_tensor.data_ptr(), own.num_accepted_tokens.data_ptr()) for own in groups]

    def _follow_stream(self) -> None:
        """What is queued from now on comes behind what vLLM has queued."""
        stream = self.host.stream()
        if stream is not None:
            self.runner.engine.set_stream(self.host.rank, stream)

    @staticmethod
    def _describe(metadata: Any) -> tuple[int, Counts]:
        """What a KDA layer's metadata says of the step."""
        if metadata is None:
            return NO_FIRST_LAYER, NO_COUNTS
        if metadata.spec_sequence_masks is None:
            return NO_MASKS, NO_COUNTS
        return VERIFY, (metadata.num_prefills, metadata.num_decodes, metadata.num_spec_decodes,
                        metadata.spec_state_indices_tensor.shape[-1], metadata.uniform_spec_sequence_length)

    def _bind_metadata(self, metadata: Any, counts: Counts) -> None:
        """Tells the device where each cache group's slots and accepted counts are; free while they stay."""
        requests, q = counts[2], counts[3]
        groups, has_changed = [(0, 0, 0)] * (1 + max(self._groups)), False
        for index, name in self._groups.items():
            own = metadata[name]
            slots, accepted = own.spec_state_indices_tensor, own.num_accepted_tokens
            if self._metadata is not None:
                slots, accepted = self._metadata.hold(index, slots, accepted, requests, q)
            # What was checked for a step is good for others of as many requests, no more.
            key = requests, slots.data_ptr(), slots.stride(), slots.shape, accepted.data_ptr(), accepted.shape
            checked, group = self._told.get(index, (None, None))
            if checked != key or group is None:
                found = state_group(name, requests, q, slots, accepted)
                has_changed |= found != group
                self._told[index] = key, found
                group = found
            groups[index] = group
        if has_changed:
            self.executor.bind_groups(groups)

    def after_step(self) -> None:
        """Once per executed step, from `compute_logits`, also under graph replay. Raises EngineStopped on every rank at
        the same step once a rank gave up, ranks ran different steps, or one has gone.
        """
        if not self.host.is_capturing():
            self._follow_stream()
            self.fail_stop.after_step()

    def resume_at(self, epoch: int) -> None:
        """Continues at another step's number, the same on every rank, between steps."""
        self.runner.engine.resume_at(epoch)
        self._plan_anew()
        self.prepare_kv()

    def close(self) -> None:
        """Ends the threads beside the kernels; no step may be under way on any rank."""
        self.runner.close()

    def counters(self) -> dict[str, Any]:
        """Steps so far: `specialized` by rows, `stock` by reason, `padded_rows`."""
        return self.executor.counters()
