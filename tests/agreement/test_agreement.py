"""Our reasons to refuse a deployment are vLLM's, on every deployment of the table, but for the written differences."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import environment
import pytest
from changes import ABSENT, changed
from configs import table, table_hash
from differences import DIFFERENCES, Difference, expected

from kimi_k3_specdec import runtime
from kimi_k3_specdec.runtime import facts as extraction

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
RENEW = "run `SPECDEC_RECORD=1 make slow PYTEST_ARGS=tests/agreement` and commit `tests/agreement/recorded.json`"
RECORD = json.loads(RECORDED.read_text(encoding="utf-8"))
# Fields without which no deployment is described: their absence is an error, whatever vLLM's default.
REQUIRED = {"scheduler_config.max_num_seqs", "speculative_config.num_speculative_tokens"}
# Facts that vLLM has no default for: it computes the second, and nothing is refused for the first.
UNKNOWN_IF_ABSENT = {"scheduler_config.max_num_batched_tokens", "model_config.runner_type"}


def facts_of(name: str) -> dict[str, Any]:
    """The recorded facts of a case."""
    return changed(RECORD["served"], RECORD["configs"][name]["deployment"])


def test_record_is_current() -> None:
    """A changed table, or another vLLM, needs a new record."""
    assert environment.VLLM == f"vllm=={RECORD['vllm']}", f"the record is of vLLM {RECORD['vllm']}; {RENEW}"
    assert RECORD["table_sha256"] == table_hash(), f"the table changed since it was recorded; {RENEW}"
    assert list(RECORD["configs"]) == list(table()), RENEW


def test_table_is_large_enough() -> None:
    """At least 60 deployments, served and refused ones, and several with many problems."""
    upstream = [entry["upstream"] for entry in RECORD["configs"].values()]
    assert len(upstream) >= 60
    assert sum(not reasons for reasons in upstream) >= 10
    assert max(map(len, upstream)) >= 8


@pytest.mark.parametrize("name", table())
def test_reasons_agree(name: str) -> None:
    """The same reasons, those that both give in the same order."""
    upstream = RECORD["configs"][name]["upstream"]
    wanted = expected(facts_of(name), upstream)
    ours = runtime.unsupported_facts(facts_of(name))
    assert sorted(ours) == sorted(wanted)
    assert [reason for reason in ours if reason in upstream] == [reason for reason in upstream if reason in ours]


@pytest.mark.parametrize("name", table())
def test_other_answers_agree(name: str) -> None:
    """The switch, its error, the warning about graphs and each layer's kernel."""
    facts, answer = facts_of(name), changed(RECORD["answer"], RECORD["configs"][name]["answer"])
    vllm_config = SimpleNamespace(
        additional_config=facts["additional_config"],
        compilation_config=SimpleNamespace(cudagraph_mode=facts["compilation_config"]["cudagraph_mode"]),
    )
    assert runtime.decode_backend(vllm_config) == answer["backend"]
    assert runtime.piecewise_graphs_only(vllm_config) is answer["piecewise_only"]
    if answer["backend"] not in (runtime.AUTO, runtime.SPECIALIZED):
        with pytest.raises(ValueError) as refused:
            runtime.specialized_decode_config(vllm_config)
        assert str(refused.value) == answer["error"]
    text = SimpleNamespace(**facts["model_config"]["hf_text_config"])
    kinds = runtime.layer_kinds(text)
    assert "".join(kinds.get(layer, "-")[0] for layer in range(text.num_hidden_layers)) == answer["layers"]


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_difference_is_shown(difference: Difference) -> None:
    """Its case is one on which this difference tells, and no other."""
    facts, upstream = facts_of(difference.shown_by), RECORD["configs"][difference.shown_by]["upstream"]
    telling = [other.name for other in DIFFERENCES if other.apply(facts, upstream) != upstream]
    assert telling == [difference.name]
    assert sorted(runtime.unsupported_facts(facts)) != sorted(upstream)


@pytest.mark.parametrize("path", sorted(RECORD["defaults"]))
def test_absent_field_is_its_default(path: str) -> None:
    """A fact that is left out counts as what vLLM has for a field that nobody sets."""
    for name in ("served", "m1", "together-most"):
        facts = facts_of(name)
        absent = changed(facts, {path: ABSENT})
        if path in REQUIRED:
            with pytest.raises(ValueError, match=path.rsplit(".", 1)[-1]):
                runtime.unsupported_facts(absent)
        else:
            by_default = changed(facts, {path: RECORD["defaults"][path]["default"]})
            assert runtime.unsupported_facts(absent) == runtime.unsupported_facts(by_default)


@pytest.mark.parametrize("path", sorted(extraction.ABSENT.keys() - UNKNOWN_IF_ABSENT))
def test_absent_attribute_is_its_default(path: str) -> None:
    """What the extraction takes an attribute for that a vLLM lacks is the default of the vLLM that has it."""
    assert extraction.ABSENT[path] == RECORD["defaults"][path]["default"]


@pytest.fixture
def progress(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says a line at once, though pytest captures output."""

    def say(line: str) -> None:
        with capfd.disabled():
            environment.say(line)

    return say


@pytest.mark.slow
def test_record_is_what_vllm_says(tmp_path: Path, progress: Callable[[str], None]) -> None:
    """The real vLLM gives the committed record, byte for byte. `SPECDEC_RECORD=1` makes its answer the record."""
    fresh = tmp_path / "recorded.json"
    python = environment.python(progress)
    progress(f"==> {len(table())} deployments, asked of the vLLM of {python}")
    done = subprocess.run([python, HERE / "record.py", fresh], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if os.environ.get("SPECDEC_RECORD") == "1":
        RECORDED.write_bytes(fresh.read_bytes())
    committed, now = (path.read_text(encoding="utf-8").splitlines() for path in (RECORDED, fresh))
    changes = "\n".join(list(difflib.unified_diff(committed, now, "recorded", "vLLM now", n=0, lineterm=""))[:40])
    assert RECORDED.read_bytes() == fresh.read_bytes(), f"vLLM says otherwise; {RENEW}\n{changes}"
