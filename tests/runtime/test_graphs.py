"""A framework's graphs on its own stream, over HIP: replays give the bits of eager steps, and the books know them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from kimi_k3_specdec.decoding import fake_hip
from kimi_k3_specdec.decoding.backbone import layer_name
from kimi_k3_specdec.runtime.stop import EngineStopped

from .buffers import KDA, REQUESTS, Buffers, Q, padded_batches
from .graphs import Model, compare, draw


@pytest.fixture
def model() -> Iterator[Model]:
    """On HIP, with the graphs of two and of four requests."""
    library = fake_hip.library()
    fake_hip.reset(library, 1, {})
    buffers = Buffers()
    made = Model(buffers, REQUESTS, Q, buffers.num_slots, library)
    for requests in (2, REQUESTS):
        made.capture(requests * Q)
    made.decode.after_step()
    yield made
    made.close()


def test_replays_give_the_bits_of_eager_steps(model: Model) -> None:
    """Batches of one to four requests, in graphs of two and four; a step in five is launched eagerly between them."""
    buffers = Buffers()
    eager = Model(buffers, REQUESTS, Q, buffers.num_slots)
    try:
        assert compare(model, eager, padded_batches(20, eager_every=5)) == {}
    finally:
        eager.close()
    counters = model.decode.counters()
    # Two steps have warmed up; a batch of one or of three requests leaves a place of its graph empty.
    assert sum(counters["specialized"].values()) == 2 + 20 and counters["padded_rows"] == 8 * Q
    assert model.decode.fail_stop.copy_alarms()()


def test_a_graph_of_vllms_own_layers_is_counted(model: Model) -> None:
    """By the reason that its capture had."""
    model.context.attn_metadata = None
    model.framework.begin_capture()
    assert model.decode.plan(torch.arange(4), None) is None
    model.graphs[4] = model.framework.end_capture()
    before = model.decode.counters()
    model.decode.begin_replay(model.metadata.capture(4), 4, 4)
    model.framework.launch(model.graphs[4])
    model.decode.after_step()
    assert model.decode.counters() == before | {"stock": {"no metadata": 1}}


def test_metadata_that_is_elsewhere_is_refused(model: Model) -> None:
    """The graph would read what an older step has left."""
    batch = draw(2, REQUESTS, Q, torch.Generator().manual_seed(2))
    moved = {name: SimpleNamespace(**vars(own)) for name, own in model.metadata.replay(batch, 8).items()}
    moved[layer_name(KDA[0])].spec_state_indices_tensor = torch.zeros(2, Q, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="the metadata of a step of 8 rows is not where its captured graph reads it"):
        model.decode.begin_replay(moved, 8, 8)
    model.replay(batch, 8)


def test_graphs_of_earlier_caches_are_forgotten(model: Model) -> None:
    """vLLM profiles graphs over a small cache, binds the real one, and captures anew."""
    model.decode.prepare_kv()
    batch = draw(1, REQUESTS, Q, torch.Generator().manual_seed(2))
    model.decode.begin_replay(model.metadata.replay(batch, 8), 8, 4)
    assert sum(model.decode.counters()["stock"].values()) == 1, "nothing of ours is announced"
    assert model.decode.runner.engine.next_step(0) == (before := model.decode.runner.engine.epoch(0))
    # Somebody replays it all the same: its kernels find no step of theirs announced, and the next step stops.
    model.framework.launch(model.graphs[8])
    model.framework.synchronize()
    assert model.decode.runner.engine.epoch(0) == before
    with pytest.raises(EngineStopped, match=rf"ran step {before} on the metadata of step {before - 1}"):
        for _ in range(3):
            model.run(batch)


def test_a_rank_that_gave_up_keeps_its_tokens(model: Model) -> None:
    """The words are copied with the tokens, from where every rank writes its own."""
    may_leave = model.decode.fail_stop.copy_alarms()
    model.decode.runner.engine.abort_handle()()
    model.replay(draw(2, REQUESTS, Q, torch.Generator().manual_seed(2)), 8)
    assert may_leave(), "the copy is of before"
    assert not model.decode.fail_stop.copy_alarms()()
