"""What `doctor` reads and prints: bad facts are refused with their JSON path, printed ones can be given back."""

from __future__ import annotations

import json

import pytest

from kimi_k3_specdec.cli.input import MAX_BYTES

from . import served

BAD = [
    ("", "`$`: the input is empty"),
    (" \n", "`$`: the input is empty"),
    ("not json", "`$`: "),
    ("[]", "`$`: "),
    ('{"rocm": "7.2.3"} {}', "trailing characters"),
    ('{"rocm": "banana"}', "`$.rocm`: unknown version format `banana`"),
    ('{"rocm": 7.2}', "`$.rocm`: invalid type"),
    ('{"packages": {"vllm": "0"}}', "`$.packages.vllm`: unknown version format `0`"),
    ('{"gpus": {}}', "`$.gpus`: invalid type"),
    ('{"gpus": [{"gfx": "sm_90"}]}', "`$.gpus[0].gfx`: unknown instruction set `sm_90`"),
    ('{"gpus": [{"gfx": "gfx950", "compute_units": -1}]}', "`$.gpus[0].compute_units`: invalid value"),
    ('{"gpus": [{"gfx": "gfx950", "compute_units": 256, "pci": "75"}]}', "`$.gpus[0].pci`: unknown PCI address `75`"),
    ('{"gpus": [{"gfx": "gfx950", "compute_units": 256}]}', "`$.gpus[0]`: missing field `pci`"),
    ('{"device_node": "shut"}', "`$.device_node`: unknown variant `shut`"),
    ('{"hip": {"library": {"loaded": "x"}, "driver": {"value": "7"}}}', "`$.hip.driver.value`: invalid type"),
    ('{"environment": {"VLLM_PLUGINS": 1}}', "`$.environment.VLLM_PLUGINS`: invalid type"),
    ('{"hip": {"library": {"loaded": "x"}, "driver": {}}}', "`$.hip.driver`: a probe has exactly one of"),
    ('{"gpus": ' + "[" * 100_000, "`$.gpus[0]"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_facts_are_refused_with_their_path(run_doctor, text, message):
    """Exit status 2, one `error:`, one `hint:`, no traceback, nothing on stdout."""
    result = run_doctor(facts=text)
    error, hint = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert error.startswith("error: ") and message in error
    assert hint.startswith("hint: ")


def test_files_that_cannot_be_read_are_refused(run_doctor, tmp_path):
    """Missing, a folder, no UTF-8, larger than 16 MiB: each named."""
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b'{"rocm": "\xff"}')
    large.write_bytes(b" " * (MAX_BYTES + 1))
    for path, reason in [(tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), (binary, "no UTF-8"),
                         (large, "larger than 16 MiB")]:
        result = run_doctor("--facts", str(path))
        error, hint = result.stderr.splitlines()
        assert result.exit_code == 2
        assert error.startswith(f"error: `{path}` ") and reason in error
        assert hint.startswith("hint: ")


def test_the_largest_file_is_read(run_doctor):
    """The limit itself is allowed."""
    text = json.dumps(served.facts())
    assert run_doctor(facts=text + " " * (MAX_BYTES - len(text))).exit_code == 0


def test_debug_shows_the_traceback(run_doctor):
    """With `--debug` the exception itself arrives."""
    result = run_doctor("--debug", facts="{")
    assert type(result.exception).__name__ == "Refused"


def test_unknown_keys_are_warned_about_by_their_nearest(run_doctor):
    """On stderr; the verdict is that of the rest."""
    facts = served.with_environment(VLLM_PLUGIN="x")
    facts["rocn"] = facts["hip"]["devices"]["value"][0]["memroy"] = None
    result = run_doctor("--json", facts=facts)
    assert result.exit_code == 0
    assert sorted(result.stderr.splitlines()) == [
        "warning: `$.environment.VLLM_PLUGIN` is not read; did you mean `VLLM_PLUGINS`?",
        "warning: `$.hip.devices.value.0.memroy` is not read; did you mean `memory`?",
        "warning: `$.rocn` is not read; did you mean `rocm`?",
    ]
    json.loads(result.stdout)


def test_printed_facts_can_be_given_back(run_doctor):
    """Printed, read and printed again they are the same, and mean the same."""
    printed = run_doctor("--print-facts", facts=served.with_facts(rocm="7.2.1"))
    assert printed.exit_code == 0
    again = run_doctor("--print-facts", facts=printed.stdout)
    assert again.stdout == printed.stdout
    report = json.loads(run_doctor("--json", facts=printed.stdout).stdout)
    assert report["facts"] == json.loads(printed.stdout)
    assert (list(report), report["verdict"]) == (["facts", "lines", "verdict"], "problem")


def test_the_two_outputs_exclude_each_other(run_doctor):
    """One stdout, one JSON value."""
    result = run_doctor("--json", "--print-facts", facts={})
    assert (result.exit_code, result.stdout) == (2, "")


def test_text_has_a_line_for_each_topic_and_a_conclusion(run_doctor):
    """Without a terminal: aligned text, hints below their lines."""
    result = run_doctor(facts=served.with_facts(rocm="7.2.1"))
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    at = next(number for number, line in enumerate(lines) if line.startswith("problem   ROCm "))
    assert lines[at + 1].strip() == "hint: install a ROCm newer than 7.2.3"
    assert lines[-1].startswith("problem: 1 of ")
    assert {line[:8].strip() for line in lines[:-1]} == {"ok", "problem", ""}
