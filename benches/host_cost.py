#!/usr/bin/env python3
"""What a step of Kimi-K3 costs the host in Python: 93 layers, vLLM-shaped metadata in, on a device that runs nothing.

Beside it a plain loop that launches every layer by itself, as many launches a step as upstream makes: each gathers its
arguments from tensors and calls a function that takes them. Both run in turns, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kimi_k3_specdec import _native  # noqa: E402
from kimi_k3_specdec.runtime import WHOLE, DecodeConfig  # noqa: E402
from kimi_k3_specdec.runtime.decode import SpecializedDecode  # noqa: E402
from kimi_k3_specdec.runtime.host import FinalSettings  # noqa: E402
from runtime import loaded  # noqa: E402

RANKS, NUM_LAYERS, HIDDEN, PROJECTION, NUM_BLOCKS = 8, 93, 7168, 1536, 8
MLA = (*range(4, 93, 4), 93)
"""Counted from 1."""
CONV_ENTRIES, CONV_CHANNELS, STATE = 3, 4608, (12, 128, 128)
NUM_GROUPS = 3
"""Cache groups of the KDA layers."""
BAR = 5.0
"""The plain loop's time over ours must be at least this."""


class Bench:
    """Rank 0 of eight, over a model of K3's shapes that holds no values; also the host that is decoded for."""

    rank, ranks = 0, RANKS

    def __init__(self, requests: int, q: int) -> None:
        """Steps of `requests` of `q` rows."""
        self.group, self.requests, self.q, rows = dist.group.WORLD, requests, q, requests * q
        self.backbone = backbone(q)
        kda = [layer.self_attn.prefix for layer in self.backbone.layers.values() if hasattr(layer.self_attn, "prefix")]
        self._groups = {name: index % NUM_GROUPS for index, name in enumerate(kda)}
        groups = [self._metadata() for _ in range(NUM_GROUPS)]
        self._context = SimpleNamespace(cudagraph_runtime_mode=SimpleNamespace(name="NONE"),
                                        attn_metadata={name: groups[index] for name, index in self._groups.items()})
        bf16 = torch.bfloat16
        self.positions = torch.zeros(rows, dtype=torch.int64)
        self.prefix, self.delta = (torch.zeros(rows, HIDDEN, dtype=bf16) for _ in range(2))
        self.blocks = torch.zeros(rows, NUM_BLOCKS, HIDDEN, dtype=bf16)
        self.core = torch.zeros(rows, PROJECTION, dtype=bf16)
        self.decode = SpecializedDecode(self.backbone, DecodeConfig(q, max_num_seqs=requests), self, device="null",
                                        geometry="k3")
        self.decode.prepare_kv()
        handle = self.decode.runner.board.handle()
        self._others = [(rank, _native.Board.join(handle, rank)) for rank in range(1, RANKS)]

    def _metadata(self) -> SimpleNamespace:
        """One cache group's, as vLLM's builder makes it for a pure verify step."""
        slots = torch.arange(1, 1 + self.requests * self.q, dtype=torch.int32).view(self.requests, self.q)
        return SimpleNamespace(
            spec_sequence_masks=torch.ones(self.requests, dtype=torch.bool), num_prefills=0, num_decodes=0,
            num_spec_decodes=self.requests, spec_state_indices_tensor=slots,
            num_accepted_tokens=torch.ones(self.requests, dtype=torch.int32), uniform_spec_sequence_length=self.q)

    def forward_context(self) -> SimpleNamespace:
        """The step's."""
        return self._context

    def is_capturing(self) -> bool:
        """Never."""
        return False

    def stream(self) -> None:
        """The device's own."""

    def attention_half(self, layer: int, positions: Tensor, prefix: Tensor, blocks: Tensor,
                       delta: Tensor | None) -> Tensor:
        """vLLM's attention, which is not ours to measure."""
        return self.core

    def state_groups(self) -> dict[str, int]:
        """Each KDA layer's."""
        return self._groups

    def final_settings(self) -> FinalSettings:
        """As they were."""
        return FinalSettings()

    def outputs_read(self) -> list[int]:
        """No drafter reads hidden states."""
        return []

    def forward(self) -> None:
        """vLLM's layer loop over the plan's stand-ins."""
        positions, prefix, blocks, delta = self.positions, self.prefix, self.blocks, self.delta
        step = self.decode.plan(positions, None)
        assert step is not None
        for index in range(NUM_LAYERS):
            layer = step.layer(index)
            if layer is not None:
                prefix, blocks, delta = layer(positions, prefix, blocks, delta)

    def step(self) -> None:
        """The forward and what `compute_logits` calls behind it."""
        self.forward()
        self.decode.after_step()

    def others(self) -> None:
        """The other ranks' part of this rank's last vote: the same books under their numbers."""
        self.books = self.decode.executor.after_step()
        for rank, board in self._others:
            board.collect()
            board.cast(bytes([rank]) + self.books[1:])


def backbone(q: int) -> SimpleNamespace:
    """Kimi-K3's layers on one of eight ranks with bound states, all of them views of memory that nobody touches."""
    text, layers = loaded.config(NUM_LAYERS, MLA), {}
    slots = 1 + 2 * NUM_GROUPS * q
    for index in range(1, NUM_LAYERS):
        is_kda = text.is_kda_layer(index)
        specs = loaded.COMMON | (loaded.KDA if is_kda else {})
        made = layers[index] = loaded.layer(index, specs, is_kda=is_kda, heads=STATE[0], head_dim=STATE[1],
                                            backend=loaded.Backend.__getitem__)
        if is_kda:
            made.self_attn.kv_cache = (
                loaded.tensor(torch.bfloat16, (slots, CONV_ENTRIES + q - 1, CONV_CHANNELS)),
                loaded.tensor(torch.float32, (slots, *STATE)))
    return SimpleNamespace(config=text, layers=layers, start_layer=0, end_layer=NUM_LAYERS)


class PlainLoop:
    """A launch for each KDA layer's attention and one for each layer's MLP, from Python, every step anew."""

    def __init__(self, bench: Bench) -> None:
        """Over the same tensors."""
        self._bench = bench
        self._layers = [
            ([self._find(layer, path) for path in (loaded.KDA if is_whole else ())],
             [self._find(layer, path) for path in loaded.COMMON], getattr(layer.self_attn, "kv_cache", ()))
            for layer, is_whole in ((layer, bench.decode.kinds[index] == WHOLE)
                                    for index, layer in bench.backbone.layers.items())]
        self.launches = 0

    @staticmethod
    def _find(layer: Any, path: str) -> Tensor:
        value: Any = layer
        for name in path.replace("mlp.experts.", "mlp.experts.routed_experts.").split("."):
            value = getattr(value, name)
        return value

    def _launch(self, *arguments: int | float) -> None:
        """What takes them; the launch itself would come on top."""
        self.launches += 1

    def step(self) -> None:
        """All launches of a step, about 28 arguments each."""
        bench, self.launches = self._bench, 0
        metadata = bench.forward_context().attn_metadata[next(iter(bench.state_groups()))]
        for number, (attention, mlp, states) in enumerate(self._layers):
            prefix, blocks, delta = bench.prefix, bench.blocks, bench.delta
            slots, accepted = metadata.spec_state_indices_tensor, metadata.num_accepted_tokens
            if attention:
                conv, recurrent = states
                self._launch(
                    *(tensor.data_ptr() for tensor in attention), prefix.data_ptr(), blocks.data_ptr(),
                    delta.data_ptr(), bench.core.data_ptr(), prefix.stride(0), blocks.stride(0), blocks.stride(1),
                    conv.data_ptr(), conv.stride(0), conv.stride(1), recurrent.data_ptr(), recurrent.stride(0),
                    slots.data_ptr(), slots.stride(0), accepted.data_ptr(), prefix.shape[0], slots.shape[-1],
                    number, 1e-5)
            self._launch(
                *(tensor.data_ptr() for tensor in mlp), prefix.data_ptr(), blocks.data_ptr(), delta.data_ptr(),
                bench.core.data_ptr(), prefix.stride(0), blocks.stride(0), blocks.stride(1), delta.stride(0),
                prefix.shape[0], blocks.shape[1], number, 1e-5, bench.rank)


def in_turns(functions: dict[str, tuple[Callable[[], None], Callable[[], None]]], seconds: float) -> dict[str, float]:
    """Median microseconds of one call of each, by turns of a few calls; what is beside it runs behind each, untimed."""
    calls, samples = 10, {name: [] for name in functions}
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for name, (function, behind) in functions.items():
            spent = 0.0
            for _ in range(calls):
                started = time.perf_counter()
                function()
                spent += time.perf_counter() - started
                behind()
            samples[name].append(spent / calls * 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}


def measure(requests: int, q: int, seconds: float) -> dict[str, Any]:
    """All figures of one step shape."""
    bench = Bench(requests, q)
    plain = PlainLoop(bench)
    board = bench.decode.runner.board

    def vote() -> None:
        board.collect()
        board.cast(bench.books)

    def stock() -> None:
        bench.decode.plan(bench.positions[:1], None)

    def nothing() -> None:
        pass

    step = bench.step, bench.others
    times = in_turns({"step": step, "vote": (vote, bench.others), "stock": (stock, nothing),
                      "plain": (plain.step, nothing)}, seconds)
    return {"requests": requests, "rows": requests * q, "layers": NUM_LAYERS,
            "launches": len(bench.decode.executor.runs()), "plain_launches": plain.launches,
            "step_us": times["step"], "step_alone_us": in_turns({"step": step}, seconds / 4)["step"],
            "vote_us": times["vote"], "stock_plan_us": times["stock"], "plain_us": times["plain"],
            "ratio": times["plain"] / times["step"]}


def table(found: dict[str, Any]) -> str:
    """The figures for people."""
    rows = [
        (f"a step: plan, {found['layers']} layers, {found['launches']} launches, after_step", found["step_us"]),
        ("the same alone, its code and data in the caches", found["step_alone_us"]),
        ("of that the vote of all ranks", found["vote_us"]),
        ("a step that stays stock: plan", found["stock_plan_us"]),
        (f"a plain loop of {found['plain_launches']} launches", found["plain_us"]),
    ]
    lines = [f"{what:<72} {microseconds:8.1f} us" for what, microseconds in rows]
    return "\n".join([*lines, f"{'the plain loop over ours':<72} {found['ratio']:8.1f} x (at least {BAR:g})"])


def main() -> int:
    """Exit status: 0 the ratio is met, 1 it is not."""
    parser = argparse.ArgumentParser(prog="benches/host_cost.py", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--requests", type=int, default=2, help="requests of a step")
    parser.add_argument("--rows-per-request", type=int, default=8, help="rows of a request")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    found = measure(options.requests, options.rows_per_request, options.seconds)
    found["profile"] = _native.build_info()["profile"]
    print(json.dumps(found, indent=1) if options.json else table(found))
    return 0 if found["ratio"] >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
