"""Captured steps replayed over persistent memory give the bits of eager ones, and the ledger lets nothing else pass."""

from __future__ import annotations

import ctypes
import random
from array import array
from collections.abc import Callable

import pytest
import torch

from kernels.world import Shape, World, as_bytes
from kimi_k3_specdec import _native
from kimi_k3_specdec.decoding import fake_hip

from .replays import FIXED, KV, Eager, Replayed, draw

LAYERS = (2, 3)
"""A KDA layer and half an MLA layer: a graph of two launches."""
STEP_WORD = 12
"""Bytes from the health header's start to the number of the step that the metadata is for."""

Make = Callable[[Shape], World]


@pytest.fixture(params=["emulator", "fake-hip"])
def on_device(request: pytest.FixtureRequest) -> Make:
    """Makes the world of a test on the emulator, or on the HIP driver over it."""
    if request.param == "emulator":
        return lambda shape: World(shape, LAYERS)

    def make(shape: Shape) -> World:
        library = fake_hip.library()
        fake_hip.reset(library, shape.ranks, {})
        return World(shape, LAYERS, library=library)

    return make


def compare(replayed: Replayed, eager: Eager, rows: int) -> None:
    """Bit for bit: the rows of requests, and all states, those of slot 0 and of other requests too."""
    found, expected = replayed.world, eager.world
    for rank in range(found.shape.ranks):
        for name in ("prefix", "delta", "bank"):
            own, other = (as_bytes(getattr(world, name)[rank][:rows]) for world in (found, expected))
            assert torch.equal(own, other), f"{name} of rank {rank}"
        for layer, states in found.states.items():
            own, other = as_bytes(states[rank].pages), as_bytes(expected.states[layer][rank].pages)
            assert torch.equal(own, other), f"states of layer {layer} on rank {rank}"


def replay_and_compare(replayed: Replayed, eager: Eager, times: int, seed: int) -> set[int]:
    """Batches of random requests at random widths; returns the widths."""
    g, rng, q, seen = torch.Generator().manual_seed(seed), random.Random(seed), replayed.world.shape.q, set()
    for _ in range(times):
        width = rng.choice(replayed.widths)
        batch = draw(replayed.world, width, g, rng)
        replayed.run(batch, width)
        eager.run(batch)
        compare(replayed, eager, len(batch.requests) * q)
        seen.add(width)
    return seen


def check_replays(make: Make, shape: Shape, times: int) -> None:
    """All of it, and that nothing of it was trivial."""
    replayed, eager = Replayed(make(shape)), Eager(World(shape, LAYERS))
    before = as_bytes(replayed.world.states[LAYERS[0]][0].pages).clone()
    assert replay_and_compare(replayed, eager, times, seed=shape.ranks) == set(replayed.widths)
    changed = (as_bytes(replayed.world.states[LAYERS[0]][0].pages) != before).any(1)
    assert changed.sum() == shape.requests * shape.q and not changed[0], "every slot of a request, and not slot 0"
    counters = replayed.executors[0].counters()
    assert sum(counters["specialized"].values()) == times and counters["padded_rows"] > 0
    assert replayed.engine.epoch(0) == eager.world.engine.epoch(0) == times


def test_replays_give_the_bits_of_eager_steps(on_device: Make) -> None:
    """Every width, in random order, padded."""
    check_replays(on_device, Shape(1, 8, 2), 60)


@pytest.mark.slow
def test_a_thousand_replays_give_the_bits_of_eager_steps(on_device: Make) -> None:
    """The same for longer."""
    check_replays(on_device, Shape(1, 8, 2), 1000)


def test_replays_of_two_ranks_give_the_bits_of_eager_steps(on_device: Make) -> None:
    """With exchanges between the ranks."""
    check_replays(on_device, Shape(2, 3, 2), 10)


@pytest.fixture
def small(on_device: Make) -> Replayed:
    """Two widths, one step replayed well."""
    replayed = Replayed(on_device(Shape(1, 2, 2)))
    replayed.replay(4)
    assert replayed.verdict()
    return replayed


def refused(replayed: Replayed, action: Callable[[], object], message: str) -> None:
    """The action is refused, the vote stops every rank, and the ledger accepts nothing any more."""
    with pytest.raises(_native.StepStopped, match=message) as raised:
        action()
    assert raised.value.hint
    assert not replayed.verdict(run=False)
    assert message.split(" ", maxsplit=1)[1] in replayed.why()
    with pytest.raises(_native.StepStopped, match="an earlier step failed: nothing is launched any more"):
        replayed.replay(2)


def reported(replayed: Replayed, message: str) -> None:
    """The device's report stops every rank, behind the step itself."""
    assert not replayed.verdict()
    assert message in replayed.why()
    with pytest.raises(_native.StepStopped, match="an earlier step failed"):
        replayed.replay(2)


def test_a_replay_over_a_stale_binding(small: Replayed) -> None:
    """The caches have moved."""
    refused(small, lambda: small.replay(2, kv=KV + 1), "the KV caches have moved since")


def test_a_replay_over_moved_pointers(small: Replayed) -> None:
    """Weights or metadata have."""
    refused(small, lambda: small.replay(2, fixed=FIXED + 1), "weights, metadata buffers or peer memory have moved")


def test_a_graph_of_an_earlier_binding(small: Replayed) -> None:
    """Captured again, it may be replayed."""
    executor = small.executors[0]
    executor.bind(KV + 1, FIXED)
    again = small.graphs[2][0] = (executor.last_graph(), small.graphs[2][0][1])
    small.engine.begin_capture(0)
    for index in range(small.plan(0, 2, is_capture=True, kv=KV + 1) or 0):
        small.launch(0, index)
    captured = small.engine.end_capture(0)
    executor.replay(executor.last_graph(), captured, 2, KV + 1, FIXED)
    assert small.verdict()
    refused(small, lambda: executor.replay(*again, 2, KV + 1, FIXED), r"graph 1 was captured over KV binding 1")


def test_a_graph_that_nobody_captured(small: Replayed) -> None:
    """By the executor's number or the engine's."""
    executor, captured = small.executors[0], small.graphs[2][0][1]
    with pytest.raises(_native.Refused, match="unknown graph `99`"):
        executor.replay(small.graphs[2][0][0], 99, 2, KV, FIXED)
    assert small.verdict()
    refused(small, lambda: executor.replay(99, captured, 2, KV, FIXED), "graph 99 was never captured")


def test_a_step_that_never_ended(small: Replayed) -> None:
    """The device's count is one short: put back, as if the launch that ends the step had been lost."""
    small.replay(2)
    small.engine.run()
    small.engine.resume_at(small.engine.epoch(0) - 1)
    reported(small, "the device is 1 steps short: a step was skipped or never ended")


def test_a_step_that_ran_twice(small: Replayed) -> None:
    """Somebody replays the graph and tells the books nothing."""
    small.replay(2)
    small.engine.replay(small.graphs[2][0][1])
    reported(small, "the device is 1 steps ahead: a step ran twice or unplanned")


def test_a_step_on_the_metadata_of_another(small: Replayed) -> None:
    """The number that the device saw is an older step's: put there behind the step, so that no kernel has seen it."""
    small.replay(2)
    small.engine.run()
    word = ctypes.c_uint32.from_address(small.engine.addresses(0)["health"] + STEP_WORD)
    assert word.value == 1
    word.value = 0
    reported(small, "step 1 ran on the metadata of step 0")


def test_a_copy_of_metadata_that_is_lost() -> None:
    """The kernels find the older number themselves, before they write anything."""
    small = Replayed(World(Shape(1, 2, 2), LAYERS))
    small.replay(4)
    assert small.verdict()
    before = small.world.memory()
    fault = small.engine.lose_copy(0, 0)
    small.replay(2)
    small.engine.run()
    assert small.engine.fault_fired(fault)
    reported(small, "rank 0 ran step 1 on the metadata of step 0")
    assert all(torch.equal(bits, before[name]) for name, bits in small.world.memory().items())


def test_a_step_that_is_left_in_the_middle(small: Replayed) -> None:
    """Neither launched to its end nor closed."""
    assert small.plan(0, 4) == 2
    small.launch(0, 0)
    refused(small, lambda: small.replay(2), "step 1 was neither launched to its end nor closed")


def test_a_step_that_is_closed(small: Replayed) -> None:
    """It consumes its number, and the next one runs; a close without a step does not."""
    assert small.plan(0, 4) == 2
    small.launch(0, 0)
    small.engine.run()
    assert small.executors[0].close_step() == 1
    assert small.verdict()
    small.replay(2)
    assert small.verdict() and small.engine.epoch(0) == 3
    refused(small, small.executors[0].close_step, "no step is open, step 3 would be the next")


def test_reports_that_stay_away(small: Replayed) -> None:
    """At most as many steps as there is room for reports."""
    for _ in range(32):
        small.replay(2)
    refused(small, lambda: small.replay(2), "no report has come since step 1")


def test_a_step_that_the_device_gave_up(small: Replayed) -> None:
    """Asked to, by the word that its waits look at."""
    small.engine.abort_handle()()
    small.replay(2)
    assert not small.verdict()
    small.why()
    with pytest.raises(_native.StepStopped, match="an earlier step failed"):
        small.replay(2)


@pytest.mark.parametrize(("word", "change", "message"), [
    (1, 1, "the ranks are not at the same step"),
    (2, 1, "the ranks are not at the same KV binding"),
    (3, 2, "the ranks ran steps of different row counts"),
    (4, 1, "the ranks ran different launches"),
    (6, 1, "the ranks ran different plans in an earlier step"),
])
def test_ranks_whose_books_differ(word: int, change: int, message: str) -> None:
    """The same verdict on both, by what one rank's words say."""
    replayed = Replayed(World(Shape(2, 1, 2), LAYERS))
    replayed.replay(2)
    books = array("I", b"".join(replayed.books()))
    assert all(executor.verdict(books.tobytes()) for executor in replayed.executors)
    books[len(books) // 2 + word] += change
    assert not any(executor.verdict(books.tobytes()) for executor in replayed.executors)
    for executor in replayed.executors:
        assert message in executor.diagnosis([], [])["sentence"]
        with pytest.raises(_native.StepStopped):
            executor.replay(*replayed.graphs[2][0], 2, KV, FIXED)


def test_ranks_that_replay_different_widths() -> None:
    """Found by the books, whether the kernels have met or not."""
    replayed = Replayed(World(Shape(2, 2, 2), LAYERS))
    replayed.replay(2, ranks=(0,))
    replayed.replay(4, ranks=(1,))
    assert not replayed.verdict(run=False)
    assert "the ranks ran steps of different row counts: 2 on rank 0; 4 on rank 1" in replayed.why()
