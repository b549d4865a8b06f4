"""Launches of Kimi-K3's own shapes on eight ranks, and what their sparse experts are held to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kimi_k3_specdec.decoding import real_layers
from kimi_k3_specdec.decoding.machine import load_code_objects
from kimi_k3_specdec.decoding.options import RunOptions
from kimi_k3_specdec.decoding.outcome import Outcome
from kimi_k3_specdec.reference.geometry import by_name

from .conftest import report_of_a_process

MOST_BYTES = 12 << 30
pytestmark = pytest.mark.usefixtures("real_shapes_alone")


def real(first: int, last: int, requests: int, tokens: int, record_property: Callable[[str, object], None]) -> None:
    """A launch that is equal to the reference on every rank, in bounded memory; its times are printed."""
    found = report_of_a_process("--geometry", "k3", "--ranks", 8, "--layers", f"{first}-{last}", "--requests", requests,
                                "--speculative-tokens", tokens)
    assert found["equal"] and found["max_error_over_tolerance"] <= 1
    assert found["specialized_layers"] == last - first + 1 and found["launches_per_step"] == 1
    record_property("printed", f"k3 layers {first}-{last}, {found['rows']} rows: {found['seconds']:.0f} s, of them "
                               f"{found['timing']['emulator_seconds']:.0f} s emulator and "
                               f"{found['timing']['check_seconds']:.0f} s checks; "
                               f"{found['peak_memory_bytes'] / 2**30:.1f} GiB")
    assert found["peak_memory_bytes"] < MOST_BYTES


def test_one_layer(record_property: Callable[[str, object], None]) -> None:
    """A whole KDA layer."""
    real(13, 13, 2, 3, record_property)


@pytest.mark.slow
@pytest.mark.parametrize(("requests", "tokens"), [(1, 1), (2, 3), (1, 7), (2, 7)])
@pytest.mark.parametrize(("first", "last"), [(12, 13), (15, 15)])
def test_launches(first: int, last: int, requests: int, tokens: int,
                  record_property: Callable[[str, object], None]) -> None:
    """Two KDA layers, the first of which writes a block, in one launch; the half of an MLA layer."""
    real(first, last, requests, tokens, record_property)


def nano(layers: tuple[int, int], requests: int = 2, tokens: int = 3) -> Outcome:
    """The same on a small model, with its experts as sparse."""
    options = RunOptions(requests=requests, speculative_tokens=tokens, layers=layers)
    name, code_object = load_code_objects("nano", 2)
    return real_layers.run_layers(options, by_name("nano"), name, code_object, lambda *_: None)


@pytest.mark.parametrize("layers", [(1, 1), (1, 2), (3, 4)])
def test_a_small_model_runs_the_same_way(layers: tuple[int, int]) -> None:
    """KDA alone, two KDA layers, and an MLA half with a block-writing layer behind it."""
    outcome = nano(layers)
    assert outcome.failure is None and outcome.steps == 1
    assert sorted(outcome.experts) == list(range(layers[0], layers[1] + 1))
    # Of 32 experts, 8 rows of 4 picks each leave some alone: the run did without them.
    assert all(4 <= count < 32 for count in outcome.experts.values())


def test_an_expert_that_nobody_filled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not read as zeros, and not taken for a neighbour."""
    route = real_layers._route
    missing = []

    def forgetful(*args: object) -> dict[int, list[int]]:
        experts = route(*args)
        # One that a row picks first of all: it is no runner-up.
        missing.append(experts[2].pop(0))
        return experts

    monkeypatch.setattr(real_layers, "_route", forgetful)
    monkeypatch.setattr(real_layers, "NEAR_PICK_LATER", 0.0)
    failure = nano((1, 2)).failure
    assert failure is not None and failure.kind == "machine"
    assert f" of layer 2, expert {missing[0]}` + " in failure.message
    assert "reads memory that nobody has written" in failure.message and "expert_up<" in failure.message
