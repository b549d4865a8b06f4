"""Facts of any kind are judged or refused, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_k3_specdec import _native

from . import served

VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=8),
                   st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
                   st.sampled_from(["0.0", "7.2.", "999999999.9", "gfxfff", "ffffffff:ff:1f.7", "GPU-", "0," * 9]))


def paths(value: Any, path: tuple = ()) -> list[tuple]:
    """Every place in a JSON value, the value itself aside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in [(*path, key), *paths(inner, (*path, key))]]


PLACES = paths(served.facts())


def replace(facts: Any, path: tuple, value: Any) -> None:
    """Puts a value in a place, unless an earlier change has taken the place away."""
    for key in path[:-1]:
        try:
            facts = facts[key]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(facts, dict) or (isinstance(facts, list) and isinstance(path[-1], int) and path[-1] < len(facts)):
        facts[path[-1]] = value


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4))
def test_facts_are_judged_or_refused(changes):
    """Whatever stands in some places: lines in three states and a verdict that follows from them, or a path."""
    facts = served.facts()
    for path, value in changes:
        replace(facts, path, value)
    try:
        report = json.loads(_native.doctor(json.dumps(facts)))
    except _native.Refused as error:
        assert str(error).startswith("`$")
        assert error.hint
        return
    problems = [line for line in report["lines"] if line["state"] == "problem"]
    assert (report["verdict"] == "problem") == bool(problems)
    assert all(line["hint"] for line in problems)
    assert report["verdict"] != "ok" or report["facts"]["gpus"]
