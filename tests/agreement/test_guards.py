"""Our guards say what vLLM's own say of the same stand-in objects, word for word and in its order, and then more."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import environment
import pytest
from test_agreement import progress as progress

from kimi_k3_specdec.runtime import guards
from runtime import loaded, loaded_cases

RECORDED = Path(__file__).resolve().parent / "recorded_guards.json"
RENEW = "run `SPECDEC_RECORD=1 make slow PYTEST_ARGS=tests/agreement` and commit `tests/agreement/recorded_guards.json`"
RECORD = json.loads(RECORDED.read_text(encoding="utf-8"))


def without_addresses(reasons: list[str]) -> list[str]:
    """Where memory happens to be is no part of a reason."""
    return [re.sub(r"address 0x[0-9a-f]+", "address {}", reason) for reason in reasons]


def test_record_is_current() -> None:
    """Changed cases, or another vLLM, need a new record."""
    assert environment.VLLM == f"vllm=={RECORD['vllm']}", RENEW
    assert RECORD["cases_sha256"] == loaded.sources_hash(), RENEW
    assert RECORD["weights"].keys() == loaded_cases.WEIGHTS.keys(), RENEW
    assert RECORD["states"].keys() == loaded_cases.STATES.keys(), RENEW


@pytest.mark.parametrize("name", loaded_cases.WEIGHTS)
def test_weight_reasons_agree(name: str) -> None:
    """vLLM's reasons, then those that its guards cannot see."""
    case = loaded_cases.WEIGHTS[name]
    found = guards.weight_reasons(case.apply(loaded.model()))
    assert without_addresses(found) == [*RECORD["weights"][name], *case.ours]
    # Only some changes are as good as what was there.
    assert found or name in ("served", "another rank's layers", "integer scaling factor of one", "whole up projection",
                             "w13_weight_scale as bytes", "w2_weight_scale as bytes")


@pytest.mark.parametrize("name", loaded_cases.STATES)
def test_cache_reasons_agree(name: str) -> None:
    """The same of the KDA states."""
    make, ours = loaded_cases.STATES[name]
    found = guards.cache_reasons({loaded_cases.NAME: make()}, num_spec=loaded_cases.NUM_SPEC)
    assert without_addresses(found) == [*RECORD["states"][name], *ours]
    assert found or name in ("SD", "DS", "one slot")


@pytest.mark.slow
def test_guards_record_is_what_vllm_says(tmp_path: Path, progress: Callable[[str], None]) -> None:  # noqa: F811
    """The real guards give the committed record, byte for byte. `SPECDEC_RECORD=1` makes their answer the record."""
    fresh = tmp_path / "recorded.json"
    python = environment.python(progress)
    progress(f"==> {len(loaded_cases.WEIGHTS)} models, asked of the vLLM of {python}")
    script = RECORDED.with_name("record_guards.py")
    done = subprocess.run([python, script, fresh], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if os.environ.get("SPECDEC_RECORD") == "1":
        RECORDED.write_bytes(fresh.read_bytes())
    assert RECORDED.read_bytes() == fresh.read_bytes(), f"vLLM says otherwise; {RENEW}"
