"""What `run` reports, and that it is the same every time."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_k3_specdec import kernels

from .conftest import MEASURED, invoke, report

KEYS = {
    "tokens_match_reference", "max_error_over_tolerance", "device", "target", "ranks", "geometry", "requests",
    "speculative_tokens", "steps", "launches_per_step", "specialized_layers", "stock_layers",
    "wave_instructions_per_second", "wave_instructions", "tokens", "acceptance", "stages", "code_objects", "near_ties",
    "seconds", "peak_memory_bytes", "timing", "failure",
}


def test_the_default_run_is_equal(default_report: dict[str, Any]) -> None:
    """Every stage within its tolerance, every token the reference's, no near-tie."""
    found = default_report
    assert set(found) >= KEYS
    assert found["tokens_match_reference"] is True and found["failure"] is None and found["near_ties"] == 0
    assert found["max_error_over_tolerance"] <= 1
    assert (found["device"], found["target"], found["ranks"]) == ("emulator", "gfx950", 2)
    assert (found["launches_per_step"], found["specialized_layers"], found["stock_layers"]) == (3, 5, 1)
    assert found["wave_instructions_per_second"] > 0 < found["timing"]["matrix_instructions_per_second"]
    assert 0 < found["poll_instructions"] < found["wave_instructions"]
    assert found["code_objects"][0]["sha256"] == kernels.manifest()["objects"][
        [o["name"] for o in kernels.manifest()["objects"]].index("layers_nano_tp2")]["sha256"]


def test_no_matrix_instruction_runs_under_a_mask(default_report: dict[str, Any]) -> None:
    """It would read the lanes outside the mask as well, whose operands the compiler may not have made there."""
    assert default_report["masked_matrix_instructions"] == 0


def test_acceptance_differs_between_requests_and_reaches_both_ends(default_report: dict[str, Any]) -> None:
    """All drafts and none are accepted somewhere; a step emits its accepted drafts and a bonus."""
    acceptance = default_report["acceptance"]
    assert acceptance[0] != acceptance[1]
    totals = [sum(counts) for counts in zip(*acceptance, strict=True)]
    assert totals[0] and totals[-1]
    for tokens, counts in zip(default_report["tokens"], acceptance, strict=True):
        assert len(tokens) == 1 + sum((drafts + 1) * n for drafts, n in enumerate(counts))


def test_the_same_run_gives_the_same_report(default_report: dict[str, Any]) -> None:
    """But for what is measured."""
    again = report("--steps", 4)
    assert {k: v for k, v in again.items() if k not in MEASURED} == {
        k: v for k, v in default_report.items() if k not in MEASURED}


def test_a_schedule_changes_no_bit(default_report: dict[str, Any]) -> None:
    """Another order of waves: equal tokens, states and exchanged payloads."""
    other = report("--steps", 4, "--schedule-seed", 1)
    for key in ("tokens", "payload_sha256", "states_sha256"):
        assert other[key] == default_report[key], key


def test_a_request_does_not_depend_on_the_others() -> None:
    """Request 0's payloads alone (2 rows) and with seven others (16 rows)."""
    alone, together = (report("--requests", n, "--speculative-tokens", 1, "--steps", 2) for n in (1, 8))
    assert alone["payload_sha256"][0] == together["payload_sha256"][0]
    assert alone["tokens"][0] == together["tokens"][0]


@pytest.mark.parametrize(("requests", "tokens", "ranks"), [(1, 1, 2), (1, 15, 2), (2, 3, 1)])
def test_small_matrix(requests: int, tokens: int, ranks: int) -> None:
    """The narrowest and the widest step, and one rank."""
    found = report("--requests", requests, "--speculative-tokens", tokens, "--ranks", ranks, "--steps", 2)
    assert found["tokens_match_reference"] is True and found["max_error_over_tolerance"] <= 1


def test_some_layers_only() -> None:
    """The others run in the reference; the run's layers still see the same inputs."""
    found = report("--layers", "2-4", "--steps", 2)
    assert (found["launches_per_step"], found["specialized_layers"], found["stock_layers"]) == (2, 3, 3)
    assert found["tokens_match_reference"] is True


def test_the_table_names_what_ran() -> None:
    """Data on stdout, nothing else."""
    result = invoke("run", "--steps", 1)
    assert result.exit_code == 0
    for words in ("layers_nano_tp2", "worst error of each stage", "expert_hidden", "wave instructions", "request 1"):
        assert words in result.stdout
    assert result.stderr == ""


def test_the_demo_ends_with_three_lines() -> None:
    """What ran, how it was checked, which fault was caught."""
    result = invoke("demo", "--steps", 2)
    assert result.exit_code == 0, result.output
    ran, checked, caught = result.stdout.rstrip().splitlines()[-3:]
    assert ran.startswith("ran: ") and checked.startswith("checked: equal") and caught.startswith("caught: ")
