"""The executor as vLLM calls it, on one emulated rank: stock and specialised steps in turn, bindings, moved memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kimi_k3_specdec import _native
from kimi_k3_specdec.decoding.outcome import Outcome, new_outcome
from kimi_k3_specdec.decoding.worker import RankSession, WorkerOptions
from kimi_k3_specdec.runtime.host import FinalSettings

from .conftest import prepared

STEPS = 4
Made = Callable[..., RankSession]


@pytest.fixture
def session() -> Any:
    """Makes sessions of one rank, without processes; ends what runs beside them."""
    made: list[RankSession] = []

    def make(fault: Callable[[RankSession, int], None] | None = None) -> RankSession:
        made.append(RankSession(WorkerOptions(0, "", 3.0, fault=fault), prepared(STEPS, 1), None))
        return made[-1]

    yield make
    for own in reversed(made):
        own.decode.close()


def decoded(own: RankSession) -> Outcome:
    """All steps, compared with the reference's tokens."""
    base = prepared(STEPS, 1)
    outcome = new_outcome(base.options, base.geometry, base.name, own.decode.executor.runs(), own.verdicts)
    own.run(outcome, lambda *_: None)
    return outcome


def test_stock_and_specialised_steps_in_turn_end_where_all_others_do(session: Made) -> None:
    """A mixed step runs vLLM's layers on the states that the kernels left, and the other way round."""

    def every_other(own: RankSession, step: int) -> None:
        own.forward_context().cudagraph_runtime_mode = SimpleNamespace(name="PIECEWISE" if step % 2 else "NONE")

    def never(own: RankSession, step: int) -> None:
        own.forward_context().cudagraph_runtime_mode = SimpleNamespace(name="PIECEWISE")

    sessions = [session(), session(every_other), session(never)]
    outcomes = [decoded(own) for own in sessions]
    assert all(outcome.failure is None and outcome.steps == STEPS for outcome in outcomes)
    assert outcomes[0].tokens == outcomes[1].tokens == outcomes[2].tokens
    counts = [own.decode.counters() for own in sessions]
    assert [sum(c["specialized"].values()) for c in counts] == [STEPS, STEPS // 2, 0]
    assert [sum(c["stock"].values()) for c in counts] == [0, STEPS // 2, STEPS]
    for mixed in (0, 1):
        for layer, state in sessions[2].states.items():
            # Rounding differs between the two ways; states of a wrong slot, step or request differ by their own size.
            for found, expected in ((sessions[mixed].states[layer].recurrent, state.recurrent),
                                    (sessions[mixed].states[layer].conv, state.conv)):
                known = ~(found.isnan() | expected.isnan())
                assert torch.equal(found.isnan(), expected.isnan())
                scale = float(expected[known].abs().max())
                torch.testing.assert_close(found[known].float(), expected[known].float(), rtol=0.1, atol=0.05 * scale)


def test_caches_can_be_bound_any_number_of_times(session: Made) -> None:
    """vLLM binds a small cache to profile graphs, then the real one; without one, steps are stock."""
    own = session()
    context = own.forward_context()
    context.attn_metadata = own.metadata()
    positions = torch.arange(8)
    attention = own.backbone.layers[1].self_attn
    cache = attention.kv_cache
    for _ in range(3):
        attention.kv_cache = []
        own.decode.prepare_kv()
        assert own.decode.plan(positions, None) is None
        attention.kv_cache = cache
        own.decode.prepare_kv()
    assert list(own.decode.counters()["stock"].values()) == [3]
    assert decoded(own).failure is None


def test_caches_that_vllm_moved_without_a_word_are_refused(session: Made) -> None:
    """In upstream's words."""
    own = session()
    own.forward_context().attn_metadata = own.metadata()
    attention = own.backbone.layers[1].self_attn
    attention.kv_cache = tuple(state.clone() for state in attention.kv_cache)
    with pytest.raises(RuntimeError, match=r"the KV cache was re-bound without prepare_kv \(ModelState"):
        own.decode.plan(torch.arange(8), None)


@pytest.mark.parametrize("layer", [1, 5])
def test_weights_that_move_are_found_within_as_many_steps_as_there_are_layers(layer: int, session: Made) -> None:
    """As a sleep mode or a reload moves them, under captured pointers."""
    own = session()
    own.forward_context().attn_metadata = own.metadata()
    norm = own.backbone.layers[layer].mlp_res_norm.weight
    norm.data = norm.data.clone()
    with pytest.raises(_native.StepStopped, match="weights, metadata buffers or peer memory have moved"):
        for _ in own.decode.kinds:
            own.decode.plan(torch.arange(8), None)
            own.decode.executor.close_step()


def test_settings_are_read_when_they_are_final(session: Made, caplog: pytest.LogCaptureFixture) -> None:
    """vLLM resolves graph modes and the interleaving behind the model's construction."""
    own = session()
    assert own.decode.config.interleave == 1
    own.final_settings = lambda: FinalSettings(interleave=4, decode_graphs="PIECEWISE")  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        own.decode.prepare_kv()
        own.decode.prepare_kv()
    assert own.decode.config.interleave == 4
    assert [record.message for record in caplog.records] == [_native.PIECEWISE_ONLY]


@pytest.mark.parametrize("change", [
    ("num_prefills", 1), ("num_decodes", 1), ("num_spec_decodes", 0), ("spec_sequence_masks", None),
    ("uniform_spec_sequence_length", None),
])
def test_other_steps_are_stock_and_counted(change: tuple[str, Any], session: Made) -> None:
    """Whatever of a batch is no uniform verify step."""
    own = session()
    metadata = own.metadata()
    for group in metadata.values():
        setattr(group, *change)
    own.forward_context().attn_metadata = metadata
    assert own.decode.plan(torch.arange(8), None) is None
    assert own.decode.plan(torch.arange(7), None) is None and own.decode.plan(torch.arange(8), object()) is None
    own.forward_context().attn_metadata = None
    assert own.decode.plan(torch.arange(8), None) is None
    counters = own.decode.counters()
    assert counters["specialized"] == {} and sum(counters["stock"].values()) == 4 and len(counters["stock"]) == 4
