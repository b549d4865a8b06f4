"""A launch that may not run: it says why, on every rank, and leaves everything as it was."""

import ctypes

import pytest
import torch

from kimi_k3_specdec._native import DeviceFailure

from .test_protocol import SHAPE, deltas, failed, tag, waits
from .world import World

LAYERS = (1, 2, 3)
FAILED, BUSY = 0, 8
"""Offsets of words of a rank's header."""


def poke(world: World, rank: int, offset: int, value: int) -> None:
    """Writes a word of a rank's header: on the emulator a device address is the host's."""
    ctypes.c_uint32.from_address(world.engine.addresses(rank)["health"] + offset).value = value


def stopped(world: World, culprit: int, sentence: str, kept: str) -> None:
    """Both ranks fail, the culprit for its own reason, the other because of it; memory named `kept` does not change."""
    before = world.memory()
    world.launch((1, 2))
    records = failed(world)
    assert not waits(records)
    own = [r for r in records if r.startswith(f"rank {culprit},")]
    assert records[0] in own and sentence in records[0], records[0]
    others = [r for r in records if not r.startswith(f"rank {culprit},")]
    assert others and all(f"saw that rank {culprit} had failed" in r for r in others)
    # 100 ticks are a microsecond: nobody waited for a time-out.
    assert world.engine.statistics()["ticks"] < 10**6
    after = world.memory()
    for name in after:
        if name.startswith("delta") or name.endswith(kept):
            assert torch.equal(after[name], before[name]), name


@pytest.mark.parametrize("culprit", [0, 1])
def test_metadata_of_another_step_is_refused(culprit):
    """The copy that brings the step's number, and with it the metadata, does not reach the device."""
    world = World(SHAPE, LAYERS)
    world.run((1, 2))
    world.engine.lose_copy(culprit, 0)
    stopped(world, culprit, "read metadata of step 0 in step 1", str(culprit))


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_second_launch_beside_a_running_one_is_refused(culprit):
    """They share the workgroups' places, so each might wait for ever; the abort word stops the other one too."""
    world = World(SHAPE, LAYERS)
    poke(world, culprit, BUSY, 1)
    stopped(world, culprit, "found another launch of its rank still running", "no memory else")
    assert ctypes.c_uint32.from_address(world.engine.addresses(culprit)["abort"]).value == 1


def test_a_launch_ends_by_taking_its_busy_word_back():
    """Also one that fails."""
    world = World(SHAPE, LAYERS)
    world.run((1, 2))
    world.engine.lose_copy(0, 0)
    world.launch((1, 2))
    failed(world)
    for rank in range(2):
        assert ctypes.c_uint32.from_address(world.engine.addresses(rank)["health"] + BUSY).value == 0


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_has_failed_poisons_the_others_with_its_next_launch(culprit):
    """The host may have queued it before it knew."""
    world = World(SHAPE, LAYERS)
    before = deltas(world)
    poke(world, culprit, FAILED, 1)
    world.launch((1, 2))
    with pytest.raises(DeviceFailure) as failure:
        world.engine.synchronize()
    records = failure.value.records
    assert records and all(f"saw that rank {culprit} had failed" in r for r in records)
    assert world.engine.statistics()["ticks"] < 10**6
    assert all(torch.equal(now, old) for now, old in zip(deltas(world), before, strict=True))


@pytest.mark.parametrize("culprit", [0, 1])
def test_every_rank_is_told_who_gave_up_and_where(culprit):
    """An alarm word per rank at every rank: the step and layer."""
    world = World(SHAPE, LAYERS)
    world.run((1, 2))
    quiet = reports(world, 0)
    assert [(r["epoch"], r["step"], r["failed"], set(r["alarms"])) for r in quiet] == [(1, 0, False, {0})] * 2
    world.indices[culprit][World.group(2), 1, 0] = world.num_slots
    world.launch((1, 2))
    failed(world)
    for rank, report in enumerate(reports(world, 1)):
        assert report["failed"] and report["epoch"] == 1 and report["step"] == 1
        assert report["alarms"][culprit] == tag(1, 2), (rank, report)


def reports(world: World, of: int) -> list[dict]:
    """What every rank has to say behind step `of`, after whatever is queued."""
    for rank in range(2):
        world.engine.queue_report(rank, of)
        assert world.engine.report(rank, of) is None
    world.engine.run()
    found = [world.engine.report(rank, of) for rank in range(2)]
    return [report for report in found if report is not None]
