"""A kernel with a mistake is found: by its results, by a located error, or by the race check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kimi_k3_specdec.cli import application
from kimi_k3_specdec.decoding.machine import load_code_objects
from kimi_k3_specdec.decoding.prepared import Prepared
from kimi_k3_specdec.reference.geometry import NANO

from .catalogue import MUTANTS
from .hunt import OPTIONS, hunt

REPRESENTATIVES = ("publish_wave_without_vmcnt", "plain_x_load")
"""One of order and one of visibility, both with the right result: they run in every test run."""


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    """What all mutants decode."""
    name, code_object = load_code_objects(NANO.name, OPTIONS.ranks)
    return Prepared(OPTIONS, NANO, name, code_object, lambda *_: None)


@pytest.fixture(scope="session")
def cache(pytestconfig: pytest.Config) -> Path:
    """Code objects of earlier runs, by content."""
    return pytestconfig.cache.mkdir("mutants")


def check(name: str, prepared: Prepared, cache: Path, record_property) -> None:
    """Builds a mutant and expects it to be found; its line of the table goes to the summary."""
    mutant = MUTANTS[name]
    finds = hunt(prepared, mutant.build(cache), wants_race=mutant.is_race)
    assert finds, f"{name} was not found: {mutant.breaks}"
    record_property("printed", f"mutant {name}: {finds[-1]} ({mutant.breaks})")
    if mutant.is_race:
        assert "races" in finds[-1].by, f"{name}: found by {finds[-1]} only"


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_kernels_still_have_what_a_mutant_changes(name, tmp_path):
    """The others are built by the slow tests only."""
    MUTANTS[name].copy(tmp_path / "kernels")


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_mutant_is_found(name, prepared, cache, record_property):
    """The race check finds it although every value is right."""
    check(name, prepared, cache, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(MUTANTS) - set(REPRESENTATIVES)))
def test_every_mutant_is_found(name, prepared, cache, record_property):
    """By whatever finds it; where order or visibility is broken, by the race check."""
    check(name, prepared, cache, record_property)


def test_the_catalogue_is_as_large_as_promised():
    """At least thirty mistakes, most of which the race check must find by itself."""
    assert len(MUTANTS) >= 30 and sum(mutant.is_race for mutant in MUTANTS.values()) >= 20


def test_the_command_reports_a_race_and_says_where(prepared, cache, monkeypatch):
    """Exit status 1 though every value is right; both accesses with rank, layer, stage, workgroup, wave and source."""
    code_object = MUTANTS["plain_x_load"].build(cache)
    monkeypatch.setattr("kimi_k3_specdec.decoding.run.load_code_objects", lambda *_: (prepared.name, code_object))
    words = "run --requests 1 --speculative-tokens 1 --steps 1 --check races".split()
    found = json.loads(CliRunner().invoke(application(), [*words, "--json"]).stdout)
    assert found["equal"] is True and len(found["races"]) == 1
    race = found["races"][0]
    assert race["kind"] == "plain-load" and race["place"].startswith(("attention_x of rank", "mlp_x of rank"))
    first, second = race["first"], race["second"]
    assert (first["stage"].split("<")[0], second["stage"].split("<")[0]) == ("seam_mix", "hidden_gemv")
    assert (first["access"], second["access"]) == ("device-scope store", "plain load")
    assert first["workgroup"] != second["workgroup"] and first["rank"] == second["rank"] and first["layer"] >= 1
    assert any("seam_mix.hpp" in line for line in first["source"]) and race["command"] == found["command"]
    shown = CliRunner().invoke(application(), words)
    assert shown.exit_code == 1 and "race (plain-load)" in shown.stdout and "reproduce: kimi-k3-spec" in shown.stdout
