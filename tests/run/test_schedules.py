"""Many orders of waves, stores that land late, copies that stay old: no race, and not a bit changes."""

from __future__ import annotations

import pytest

from .conftest import refused, report

SMALL = ("--requests", 1, "--speculative-tokens", 1, "--steps", 1)
SAME = ("tokens", "payload_sha256", "states_sha256")
"""What no schedule may change."""


def explored(*words: object) -> None:
    """An exploration that finds nothing."""
    found = report("--check", "races", *words)
    assert found["races"] == [] and found["equal"] is True
    assert [schedule for schedule in found["schedules"] if schedule["found"]] == []


def test_a_run_has_no_race_and_the_check_changes_nothing() -> None:
    """Two steps of both parities; the same bits as without the check."""
    words = ("--requests", 2, "--speculative-tokens", 1, "--steps", 2)
    checked, plain = report(*words, "--check", "races"), report(*words)
    assert checked["races"] == [] and checked["check"] == "races"
    assert all(checked[key] == plain[key] for key in (*SAME, "wave_instructions"))


@pytest.mark.parametrize("words", [("--schedule", "priorities"), ("--memory", "weak"),
                                   ("--memory", "weak", "--schedule", "priorities", "--schedule-seed", 5)], ids=str)
def test_neither_order_nor_visibility_changes_a_bit(words) -> None:
    """Stalled waves and ranks; stores in flight and old copies."""
    plain, other = report(*SMALL), report(*SMALL, *words)
    assert all(other[key] == plain[key] for key in SAME)
    assert other["wave_instructions"] != plain["wave_instructions"], "the words are meant to change the schedule"


def test_each_schedule_of_an_exploration_has_its_command() -> None:
    """Kinds in turn, seeds counted on, and the command repeats the run."""
    found = report(*SMALL, "--check", "races", "--schedules", 3, "--schedule-seed", 7)
    schedules = found["schedules"]
    assert [(s["schedule"], s["seed"]) for s in schedules] == [("turns", 7), ("priorities", 8), ("turns", 9)]
    words = schedules[1]["command"].split()[2:]
    assert words[-4:] == ["--check", "races", "--schedule", "priorities"]
    again = report(*words)
    assert (again["schedule"], again["schedule_seed"], again["races"]) == ("priorities", 8, [])


@pytest.mark.parametrize(("words", "error"), [
    (("--check", "everything"), "unknown check `everything`"),
    (("--schedule", "fair"), "unknown schedule `fair`"),
    (("--schedule", "all"), "unknown schedule `all`"),
    (("--memory", "none"), "unknown memory `none`"),
    (("--schedules", 0), "--schedules 0"),
    (("--geometry", "k3", "--ranks", 8, "--layers", "1", "--check", "races"), "on small models only"),
], ids=str)
def test_what_cannot_be_checked_is_refused(words, error) -> None:
    """In one sentence with a hint."""
    assert error in refused(*words)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 500])
def test_no_race_in_a_thousand_schedules(first) -> None:
    """Two halves, one for each core."""
    explored(*SMALL, "--schedules", 500, "--schedule-seed", first)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 10])
def test_no_race_in_twenty_schedules_of_long_runs(first) -> None:
    """Nine layers in one launch, blocks written inside."""
    explored("--geometry", "nano-deep", "--requests", 2, "--speculative-tokens", 1, "--steps", 2, "--schedules", 10,
             "--schedule-seed", first)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(1, 1, 1), (2, 8, 1), (2, 2, 7), (1, 3, 3)], ids=str)
def test_no_race_at_other_widths(words) -> None:
    """One rank, and both ways to sixteen rows."""
    ranks, requests, drafts = words
    explored("--ranks", ranks, "--requests", requests, "--speculative-tokens", drafts, "--steps", 3, "--schedules", 6)


@pytest.mark.slow
def test_weak_memory_changes_no_bit_under_many_seeds() -> None:
    """Every run is compared with the reference, stage by stage."""
    found = report(*SMALL, "--memory", "weak", "--schedules", 40)
    assert [schedule for schedule in found["schedules"] if schedule["found"]] == []
