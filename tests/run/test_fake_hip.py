"""`run --device fake-hip`: the HIP driver over the emulator decodes what the emulator's own driver does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kimi_k3_specdec.decoding import fake_hip
from kimi_k3_specdec.errors import UserError

from .conftest import invoke, refused, report

EQUAL = ("tokens", "reference_tokens", "acceptance", "rank_states_sha256", "states_sha256", "launches_per_step",
         "specialized_layers", "code_objects")
"""What does not depend on the driver."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_and_states_are_the_emulators(ranks: int) -> None:
    """On one rank and on two, which exchange through the driver's peer memory; no stage is compared, and it says so."""
    words = ("--ranks", ranks, "--steps", 3)
    found, expected = report("--device", "fake-hip", *words), report(*words)
    assert {key: found[key] for key in EQUAL} == {key: expected[key] for key in EQUAL}
    assert found["equal"] is True and found["tokens_match_reference"] is True
    assert len(set(found["rank_states_sha256"])) == ranks
    assert (found["device"], found["stages"], found["payload_sha256"]) == ("fake-hip", {}, [])
    assert expected["stages"] and expected["payload_sha256"]
    assert "--device fake-hip" in found["command"]


def test_a_schedule_changes_no_token() -> None:
    """Another seed, another kind of schedule; a second run in one process gets a machine of its own."""
    words = ("--device", "fake-hip", "--ranks", 2, "--steps", 2)
    plain, other = report(*words), report(*words, "--schedule", "priorities", "--schedule-seed", 5)
    assert (plain["tokens"], plain["rank_states_sha256"]) == (other["tokens"], other["rank_states_sha256"])


def test_a_call_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the call, HIP's status and the fake library's own words; the next run is as if nothing had been."""
    words = ("--device", "fake-hip", "--ranks", 1, "--steps", 1)
    monkeypatch.setenv("FAKE_HIP_FAIL", "hipMalloc:3:2")
    error = refused(*words)
    assert "`hipMalloc`" in error and "`hipMalloc` was made to fail" in error
    monkeypatch.setenv("FAKE_HIP_FAIL", "hipModuleLaunchKernel:2:719")
    error = refused(*words)
    assert "`hipModuleLaunchKernel` of `layers`, 8 workgroups" in error and "hipErrorLaunchFailure" in error
    monkeypatch.delenv("FAKE_HIP_FAIL")
    assert report(*words)["equal"] is True


def test_the_table_says_that_no_stage_was_compared() -> None:
    """In the place of the stages' table."""
    result = invoke("run", "--device", "fake-hip", "--ranks", 1, "--steps", 1)
    assert result.exit_code == 0 and "no stage compared" in result.stdout
    assert "worst error of each stage" not in result.stdout


def test_without_hip_it_says_where_it_looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its versioned names, then below ROCM_PATH."""
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    error = refused("--device", "hip")
    assert error.startswith("error: HIP not found: looked for `libamdhip64.so.7`")
    assert f"`{tmp_path}/lib/libamdhip64.so`" in error


def test_a_fake_library_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Named but missing; not in a checkout; not built and no cargo."""
    monkeypatch.setenv(fake_hip.VARIABLE, str(tmp_path / "nothing.so"))
    assert "SPECDEC_FAKE_HIP names" in refused("--device", "fake-hip", "--steps", 1)
    monkeypatch.delenv(fake_hip.VARIABLE)
    monkeypatch.setattr(fake_hip, "CHECKOUT", tmp_path)
    with pytest.raises(UserError, match="only a checkout"):
        fake_hip.library()
    (tmp_path / "crates" / "fake-hip" / "src").mkdir(parents=True)
    monkeypatch.delenv("CARGO_TARGET_DIR", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UserError, match="there is no `cargo`"):
        fake_hip.library()


def test_a_named_library_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever else there is."""
    copy = tmp_path / "libfake_hip.so"
    shutil.copy(fake_hip.library(), copy)
    monkeypatch.setenv(fake_hip.VARIABLE, str(copy))
    assert fake_hip.library() == copy
