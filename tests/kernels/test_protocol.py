"""How ranks wait for each other, and how they stop: nothing hangs, nothing of another step is taken for this one's."""

import re

import pytest
import torch

from kimi_k3_specdec._native import DeviceFailure, MachineError, Refused, geometry
from kimi_k3_specdec.decoding.exchanges import PAIR_REGIONS

from .world import Shape, World, as_bytes, assert_same

SHAPE = Shape(2, 2, 2)
LAYERS = (1, 2, 3)
CONSUMERS = {"attention_out": "mlp_dots", "logits": "route", "latent": "route", "latent_out": "latent_norm",
             "output": "output"}
"""Who waits for each region of pairs, in the last layer of a run."""
POISON = (254, 2**24 - 1)
"""Layer and epoch whose tag would be the poison's, all bits: no model has that layer."""
TAG_EPOCHS, TAG_LAYERS = 2**24, 256


def tag(epoch: int, layer: int) -> int:
    """Of one layer in one step."""
    return epoch % TAG_EPOCHS * TAG_LAYERS + layer + 1


def failed(world: World) -> list[str]:
    """The sentences of a step that must fail."""
    with pytest.raises(DeviceFailure) as failure:
        world.engine.synchronize()
    with pytest.raises(Refused, match="an earlier step failed"):
        world.launch((world.layers[0], world.layers[0]))
    return failure.value.records


def waits(records: list[str]) -> list[dict[str, str]]:
    """The parts of every sentence about a wait that timed out."""
    pattern = re.compile(r"rank (?P<rank>\d+), layer (?P<layer>\d+), stage (?P<stage>\w+), CTA (?P<cta>\d+) "
                         r"waited in vain for rank (?P<source>\d+) "
                         r"\(tag (?P<wanted>0x\w+), saw (?P<saw>0x\w+), byte (?P<byte>0x\w+)\)")
    return [match.groupdict() for match in map(pattern.fullmatch, records) if match]


def deltas(world: World) -> list[torch.Tensor]:
    """A copy of every rank's output memory."""
    return [as_bytes(delta).clone() for delta in world.delta]


@pytest.mark.parametrize("layer", [1, 3])
def test_a_missing_rank_is_a_located_deadlock(layer):
    """Before the first exchange between ranks everything runs; there every waiter is named."""
    world = World(SHAPE, (layer,))
    world.launch((layer, layer), ranks=[0])
    with pytest.raises(MachineError, match="deadlock") as error:
        world.engine.synchronize()
    assert "seam_dots" in str(error.value) and "polls attention_out of rank 0 pair" in str(error.value)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_rank_is_a_timeout_that_names_it(missing):
    """The survivor ends, publishes poison and leaves its output memory alone."""
    world = World(SHAPE, (3,), stall="advance")
    before = deltas(world)
    world.launch((3, 3), ranks=[1 - missing])
    records = failed(world)
    culprits = [w for w in waits(records) if w["source"] == str(missing)]
    assert culprits[0] == waits(records)[0] and all(w["stage"] == "mlp_dots" and w["layer"] == "3" for w in culprits)
    assert all(w["wanted"] == hex(tag(0, 3)) and w["saw"] == "0x0" for w in culprits)
    assert all(torch.equal(now, old) for now, old in zip(deltas(world), before, strict=True)), "garbage came out"
    for owner in range(2):
        # What the survivor still owed, it published as poison; nothing of it bears the step's tag.
        for region in ("logits", "latent", "latent_out", "output"):
            assert world.engine.tap(owner, region, *POISON) is not None
            assert world.engine.tap(owner, region, 3, 0) is None


@pytest.mark.parametrize("first", [True, False])
def test_ranks_on_different_runs_stop(first):
    """Their tags differ by the layer: neither takes the other's data."""
    world = World(SHAPE, (3, 5), stall="advance")
    world.launch((3, 3), ranks=[int(first)])
    world.launch((5, 5), ranks=[1 - int(first)])
    found = {(w["layer"], w["source"]) for w in waits(failed(world)) if w["stage"] == "mlp_dots"}
    assert found == {("3", str(1 - int(first))), ("5", str(int(first)))}


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_failed_rank_poisons_the_others_at_once(culprit):
    """One rank sees a bad slot; nobody waits for a time-out, and every record of the other rank names the source."""
    world = World(SHAPE, LAYERS)
    world.indices[culprit][World.group(1), 1, 0] = world.num_slots
    before = deltas(world)
    world.launch((1, 2))
    records = failed(world)
    assert f"rank {culprit}, layer 1, stage kda" in records[0] and "request 1" in records[0]
    assert not waits(records)
    others = [r for r in records if r.startswith(f"rank {1 - culprit},")]
    assert others and all(f"saw that rank {culprit} had failed" in r for r in others)
    # 100 ticks are a microsecond: far from the time-out, which the clock would have jumped to.
    assert world.engine.statistics()["ticks"] < 10**6
    assert all(torch.equal(now, old) for now, old in zip(deltas(world), before, strict=True))


def occurrences(region: str) -> int:
    """Pairs that one rank stores into one rank's region, for the step's rows."""
    dims = geometry("nano", 2)["dims"]
    return SHAPE.rows * {"attention_out": dims["hidden"] // 2, "logits": dims["router_rows"],
                         "latent": dims["latent_rows"] // 2, "latent_out": dims["latent"] // 2,
                         "output": dims["hidden"] // 2}[region]


@pytest.mark.parametrize("region", PAIR_REGIONS)
@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize("owner", [0, 1])
def test_a_wrong_tag_is_a_lost_pair(region, which, owner):
    """One bit of one tag: its reader times out, and says which rank owes it and what it saw instead."""
    world = World(SHAPE, (3,), stall="advance")
    bit = 5 if which == "first" else 30
    fault = world.engine.corrupt_store(1, region, owner, 0 if which == "first" else occurrences(region) - 1,
                                       1 << 32 + bit)
    world.launch((3, 3))
    records = failed(world)
    assert world.engine.fault_fired(fault)
    first = waits(records)[0]
    assert (first["rank"], first["stage"], first["source"]) == (str(owner), CONSUMERS[region], "1"), records
    assert first["saw"] == hex(tag(0, 3) ^ 1 << bit)


def test_a_lost_pair_without_time_is_a_located_deadlock():
    """The report has stage, rank and region of who waits."""
    world = World(SHAPE, (3,))
    world.engine.corrupt_store(0, "logits", 1, 7, 1 << 40)
    world.launch((3, 3))
    with pytest.raises(MachineError, match="deadlock") as error:
        world.engine.synchronize()
    assert "route" in str(error.value) and "polls logits of rank 1 pair" in str(error.value)


@pytest.mark.parametrize("region", PAIR_REGIONS)
def test_a_poisoned_pair_is_not_waited_for(region):
    """All bits of a tag: the reader gives up at once and names the rank that stored it."""
    world = World(SHAPE, (3,))
    world.engine.corrupt_store(1, region, 0, 3, (tag(0, 3) ^ 0xFFFFFFFF) << 32)
    world.launch((3, 3))
    records = failed(world)
    assert f"rank 0, layer 3, stage {CONSUMERS[region]}" in records[0]
    assert "saw that rank 1 had failed" in records[0] and not waits(records)


def test_an_abort_stops_a_step_that_cannot_finish():
    """The host's word ends waits before their time: no clock has to move."""
    world = World(SHAPE, (3,))
    world.engine.abort()
    world.launch((3, 3), ranks=[0])
    records = failed(world)
    assert any("was asked to give up" in r for r in records)
    assert all("was asked to give up" in r or "saw that rank 0 had failed" in r for r in records), records


def test_epochs_count_steps_and_alternate_between_the_halves():
    """Each step's exchanges are kept under its own tag; pairs of neighbouring steps lie in different halves."""
    regions = geometry("nano", 2)["regions"]
    half = sum(-(-2 * size // 256) * 256 for size, form in regions.values() if form == "pairs")
    for steps in range(4):
        world = World(SHAPE, (3,), stall="advance")
        taken = [world.run() for _ in range(steps)]
        assert [world.engine.epoch(rank) for rank in range(2)] == [steps] * 2
        for epoch, step in enumerate(taken):
            assert step.epoch == epoch and step.by_row(3)
        world.launch((3, 3), ranks=[0])
        found = [w for w in waits(failed(world)) if w["stage"] == "mlp_dots"]
        assert {int(w["byte"], 16) // half for w in found} == {steps % 2}
        # What the half holds is two steps old: it is seen, and not taken.
        assert {w["saw"] for w in found} == {hex(tag(steps - 2, 3)) if steps >= 2 else "0x0"}


@pytest.mark.parametrize("start", [TAG_EPOCHS - 2, 2**32 - 2], ids=["tag", "word"])
def test_epochs_wrap(start):
    """Tags wrap at 2**24 steps, the epoch's word at 2**32: to even epochs, so that halves go on alternating."""
    fresh, world = World(SHAPE, (3,)), World(SHAPE, (3,))
    world.engine.resume_at(start)
    for step in range(4):
        epoch = (start + step) % 2**32
        assert world.engine.epoch(1) == epoch
        for name in ("prefix", "delta"):
            for mine, other in zip(getattr(world, name), getattr(fresh, name), strict=True):
                mine.copy_(other)
        assert_same(world.run().by_row(3), fresh.run().by_row(3))
    assert world.engine.epoch(0) == (start + 4) % 2**32


@pytest.mark.parametrize("runs", [1, 2])
def test_a_step_that_is_given_up_leaves_no_tag_behind(runs):
    """Its number is used up; the next step runs as the twin's that never began it."""
    world, twin = World(SHAPE, LAYERS), World(SHAPE, LAYERS)
    begun = World(SHAPE, LAYERS)
    for run in [(1, 1), (2, 2)][:runs]:
        begun.launch(run, last_of_step=False)
        begun.engine.synchronize()
    # The same memory as the twin's again, but for what the exchanges hold.
    for name in ("prefix", "delta", "bank"):
        for rank in range(2):
            getattr(begun, name)[rank].copy_(getattr(world, name)[rank])
    for layer, ranks in begun.states.items():
        for rank, own in enumerate(ranks):
            own.pages.copy_(world.states[layer][rank].pages)
    assert [begun.engine.close_step(rank) for rank in range(2)] == [1, 1]
    begun.run((1, 2))
    twin.run((1, 2))
    assert_same(begun.memory(), twin.memory())
    assert [begun.engine.epoch(rank) for rank in range(2)] == [2, 2]
    with pytest.raises(Refused, match="has no step open"):
        begun.engine.close_step(0)
