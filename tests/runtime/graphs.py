"""A framework captures steps on its own stream and replays them: `SpecializedDecode` over HIP, driven as by vLLM.

The framework's part, stream and graphs, is played on the HIP library. Metadata comes from whoever makes it: vLLM's
own builders, or a stand-in of theirs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.world import States, as_bytes
from kimi_k3_specdec.decoding.backbone import backbone
from kimi_k3_specdec.decoding.slots import NUM_GROUPS, group_of
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.synthetic import synthetic_layers
from kimi_k3_specdec.runtime import DecodeConfig
from kimi_k3_specdec.runtime.decode import SpecializedDecode
from kimi_k3_specdec.runtime.host import FinalSettings
from kimi_k3_specdec.runtime.staging import Registered

LAYERS = range(1, NANO.num_layers)
THREAD_LOCAL = 1
"""`hipStreamCaptureModeThreadLocal`, as torch captures."""


class Framework:
    """What torch does with a HIP library: a stream, captures on it, replays."""

    def __init__(self, library: Path) -> None:
        """A stream of the current device."""
        self._hip, self.stream = ctypes.CDLL(str(library)), ctypes.c_void_p()
        self._call("hipStreamCreateWithFlags", ctypes.byref(self.stream), 1)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._hip, name)(*arguments)
        assert status == 0, f"{name}: {status}"

    def is_capturing(self) -> bool:
        """Whether its stream is."""
        status = ctypes.c_int()
        self._call("hipStreamIsCapturing", self.stream, ctypes.byref(status))
        return status.value != 0

    def begin_capture(self) -> None:
        """From now on the stream records."""
        self._call("hipStreamBeginCapture", self.stream, THREAD_LOCAL)

    def end_capture(self) -> ctypes.c_void_p:
        """What it recorded, ready to launch."""
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("hipStreamEndCapture", self.stream, ctypes.byref(graph))
        self._call("hipGraphInstantiate", ctypes.byref(made), graph, None, None, ctypes.c_size_t(0))
        self._call("hipGraphDestroy", graph)
        return made

    def launch(self, graph: ctypes.c_void_p) -> None:
        """Replays it."""
        self._call("hipGraphLaunch", graph, self.stream)

    def synchronize(self) -> None:
        """Waits for the stream."""
        self._call("hipStreamSynchronize", self.stream)

    def close(self, graphs: list[ctypes.c_void_p]) -> None:
        """Gives everything back, once nothing runs any more."""
        self.synchronize()
        for graph in graphs:
            self._call("hipGraphExecDestroy", graph)
        self._call("hipStreamDestroy", self.stream)


@dataclass(frozen=True)
class Batch:
    """A verify step: requests by number, accepted counts, and what each row brings."""

    requests: list[int]
    accepted: list[int]
    activations: dict[str, Tensor]
    """bf16 `prefix`, `delta` [rows, hidden], `blocks` [rows, blocks, hidden], `core` [rows, projection]."""


class Metadata(Protocol):
    """Who makes steps' metadata: {layer's attention: metadata} over slots that stay a request's."""

    def eager(self, batch: Batch) -> dict[str, Any]:
        """Of exactly the batch."""
        ...

    def capture(self, width: int) -> dict[str, Any]:
        """For a graph of `width` rows: where replays have theirs."""
        ...

    def announce(self, decode: SpecializedDecode, batch: Batch, width: int) -> None:
        """Makes that of the batch padded to `width` rows, where the graph reads it, and announces the replay."""
        ...

    def memory(self) -> list[Tensor]:
        """Every tensor that a step may read."""
        ...


class Model:
    """Nano's served layers on one rank, with their caches and the tensors of a step; also the decode's host."""

    rank, ranks, group = 0, 1, None

    def __init__(self, metadata: Metadata, requests: int, q: int, slots: int, library: Path | None = None) -> None:
        """Steps of up to `requests` of `q` rows, over `slots` state slots. `library`: the HIP to run on; None: the
        emulator, eagerly. Two models are equal.
        """
        g, shard, rows = torch.Generator().manual_seed(7), NANO.shard(1), requests * q
        self.metadata, self.q, self.context = metadata, q, SimpleNamespace(
            cudagraph_runtime_mode=SimpleNamespace(name="NONE"), attn_metadata=None)
        weights = synthetic_layers(NANO, 1, LAYERS, 0, range(NANO.num_experts))[0]
        kda = [layer for layer in LAYERS if NANO.layer_kind(layer) == "kda"]
        self.states = {layer: States.draw(shard, slots, q, False, g) for layer in kda}
        self.backbone = backbone(weights, {layer: states.state for layer, states in self.states.items()})
        self.backbone.start_layer = LAYERS[0]
        self.activations = {
            "prefix": torch.zeros(rows, NANO.hidden, dtype=torch.bfloat16),
            "delta": torch.zeros(rows, NANO.hidden, dtype=torch.bfloat16),
            "blocks": torch.zeros(rows, NANO.num_blocks, NANO.hidden, dtype=torch.bfloat16),
            "core": torch.zeros(rows, shard.projection, dtype=torch.bfloat16)}
        self.framework = None if library is None else Framework(library)
        config = DecodeConfig(q, max_num_seqs=requests)
        self.decode = SpecializedDecode(self.backbone, config, self, geometry=NANO.name, library=library,
                                        device="emulator" if library is None else "hip")
        self.graphs: dict[int, Any] = {}
        if library is not None:
            # What a GPU would have in its own memory.
            self._memory = Registered(self.decode.runner.engine, 0)
            states = [own.pages for own in self.states.values()]
            for tensor in (*self._weights(), *states, *self.activations.values(), *metadata.memory()):
                self._memory.add(tensor, "memory of a step")
        self.decode.prepare_kv()

    def _weights(self) -> list[Tensor]:
        return [tensor for layer in self.decode.kinds for tensor in self.decode._tensors(layer).values()]

    def close(self) -> None:
        """Ends what runs beside it, and gives the framework's objects back."""
        self.decode.close()
        if self.framework is not None:
            self.framework.close(list(self.graphs.values()))

    def forward_context(self) -> Any:
        """The step's."""
        return self.context

    def is_capturing(self) -> bool:
        """Whether the framework's stream is."""
        return self.framework is not None and self.framework.is_capturing()

    def stream(self) -> int | None:
        """The framework's."""
        return None if self.framework is None else self.framework.stream.value

    def attention_half(self, layer: int, positions: Tensor, prefix: Tensor, blocks: Tensor,
                       delta: Tensor | None) -> Tensor:
        """Whatever it is: the same for every MLA layer."""
        return self.activations["core"][: prefix.shape[0]]

    def state_groups(self) -> dict[str, int]:
        """Each KDA layer's."""
        return {self.backbone.layers[layer].self_attn.prefix: group_of(layer) for layer in self.states}

    def final_settings(self) -> FinalSettings:
        """As they were."""
        return FinalSettings()

    def outputs_read(self) -> list[int]:
        """No drafter reads hidden states."""
        return []

    def forward(self, metadata: Any, width: int) -> None:
        """vLLM's layer loop: eager, or recorded while the stream captures."""
        self.context.attn_metadata = metadata
        step = self.decode.plan(torch.arange(width), None)
        assert step is not None, self.decode.counters()
        prefix, blocks, delta = (self.activations[name][:width] for name in ("prefix", "blocks", "delta"))
        for index in LAYERS:
            layer = step.layer(index)
            assert layer is not None
            prefix, blocks, delta = layer(torch.arange(width), prefix, blocks, delta)

    def load(self, batch: Batch) -> int:
        """Writes a batch into the step's rows; the rows behind it stay as they are. Returns their number."""
        rows = len(batch.requests) * self.q
        for name, values in batch.activations.items():
            self.activations[name][:rows] = values
        return rows

    def run(self, batch: Batch) -> None:
        """A step as it is."""
        rows = self.load(batch)
        self.forward(self.metadata.eager(batch), rows)
        self.decode.after_step()
        if self.framework is not None:
            self.framework.synchronize()

    def capture(self, width: int) -> None:
        """The graph of a width, behind a step that warms up, as vLLM makes it."""
        assert self.framework is not None
        self.forward(self.metadata.capture(width), width)
        self.framework.synchronize()
        self.framework.begin_capture()
        self.forward(self.metadata.capture(width), width)
        self.graphs[width] = self.framework.end_capture()

    def replay(self, batch: Batch, width: int) -> None:
        """A step padded to `width` rows."""
        assert self.framework is not None
        self.load(batch)
        self.metadata.announce(self.decode, batch, width)
        self.framework.launch(self.graphs[width])
        self.decode.after_step()
        self.framework.synchronize()

    def differences(self, other: Model, rows: int) -> list[str]:
        """What is not the same in both, bit for bit: the rows of requests, and all states."""
        out = [name for name in ("prefix", "delta", "blocks")
               if not torch.equal(as_bytes(self.activations[name][:rows]), as_bytes(other.activations[name][:rows]))]
        return out + [f"states of layer {layer}" for layer, own in self.states.items()
                      if not torch.equal(as_bytes(own.pages), as_bytes(other.states[layer].pages))]


def compare(model: Model, eager: Model, batches: Iterable[tuple[Batch, int | None]]) -> dict[int, list[str]]:
    """What differs behind which step: `model` replays each batch in the graph of the width beside it, or runs it
    eagerly where that is None; `eager` runs all of them eagerly.
    """
    differences = {}
    for step, (batch, width) in enumerate(batches):
        model.run(batch) if width is None else model.replay(batch, width)
        eager.run(batch)
        if found := model.differences(eager, len(batch.requests) * model.q):
            differences[step] = found
    return differences


def draw(live: int, requests: int, q: int, g: torch.Generator) -> Batch:
    """A batch of `live` of the `requests`, in any order."""
    shard, rows = NANO.shard(1), live * q
    shapes = {"prefix": (rows, NANO.hidden), "delta": (rows, NANO.hidden),
              "blocks": (rows, NANO.num_blocks, NANO.hidden), "core": (rows, shard.projection)}
    return Batch(torch.randperm(requests, generator=g)[:live].tolist(),
                 torch.randint(1, q + 1, (live,), generator=g).tolist(),
                 {name: torch.randn(shape, generator=g).to(torch.bfloat16) for name, shape in shapes.items()})


def slot_tables(requests: int, q: int, seed: int) -> tuple[list[Tensor], int]:
    """By cache group, int32 [requests, q]: every request's slots, slot 0 nobody's; and how many slots there are."""
    g = torch.Generator().manual_seed(seed)
    count = NUM_GROUPS * requests * q
    slots = (1 + torch.randperm(count, generator=g)).to(torch.int32).view(NUM_GROUPS, requests, q)
    return list(slots), 1 + count
