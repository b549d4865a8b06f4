"""`kimi-k3-specdec check`: what it answers, what it refuses to read, and what it does without."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kimi_k3_specdec import _native, cli
from kimi_k3_specdec.cli import answer, application

EXAMPLE = _native.example_deployment()


def check(*words: object, stdin: str | bytes | None = None) -> Result:
    """`kimi-k3-specdec check WORDS`."""
    return CliRunner().invoke(application(["check"]), ["check", *map(str, words)], input=stdin)


def with_sections(**sections: dict[str, Any] | None) -> str:
    """The example with keys of its sections replaced; None replaces the section."""
    deployment = json.loads(EXAMPLE)
    for name, keys in sections.items():
        deployment[name] = None if keys is None else {**deployment.get(name, {}), **keys}
    return json.dumps(deployment)


def test_the_example_is_served() -> None:
    """And says what would run."""
    result = check("-", stdin=EXAMPLE)
    assert result.exit_code == 0, result.output
    layers = "92 of 93 layers specialised: 68 whole, 24 behind vLLM's MLA attention; 25 launches a step and rank"
    for line in ("served: Kimi-K3 on MI355X (gfx950)", "  rows of a launch: 8, 16", f"  {layers}"):
        assert line in result.stdout.splitlines()
    assert "memory a rank:" in result.stdout and "code object" in result.stdout


def test_json_has_the_same_answer(tmp_path: Path) -> None:
    """With the sizes in bytes, the code object among them."""
    path = tmp_path / "deployment.json"
    path.write_text(EXAMPLE)
    answer = json.loads(check(path, "--json").stdout)
    assert answer["served"] and answer["decode_config"]["q"] == 8 and answer["widths"] == [8, 16]
    buffers = answer["memory"]["buffers"]
    assert answer["memory"]["total_bytes"] == sum(buffers.values()) and buffers["code_object_bytes"] > 100_000


def test_twelve_problems_are_twelve_reasons_each_with_a_change() -> None:
    """All at once, in the documented order."""
    text = with_sections(
        parallel_config={"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "enable_eplb": True,
                         "enable_dbo": True},
        model_config={"enable_sleep_mode": True, "dtype": "float16"},
        cache_config={"use_replayssm": True},
        scheduler_config={"max_num_seqs": 3},
        speculative_config={"enable_adaptive_verification": True},
        environment={"VLLM_ROCM_USE_AITER": "0"},
        lora_config={"max_loras": 1},
        platform={"kind": "cuda", "gfx": None, "compute_units": None},
    )
    result = check("-", "--json", stdin=text)
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [item["reason"].split(" (")[0] for item in answer["refusals"]] == [
        "TP 4", "pipeline parallelism", "EPLB", "DBO", "LoRA", "AITER off", "sleep mode", "adaptive verification",
        "KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state", "ReplaySSM / RecoverSSM",
        "max_num_seqs 3 at 7 speculative tokens", "this platform"]
    assert all(item["change"] for item in answer["refusals"]) and answer["nearest"]
    shown = check("-", stdin=text).stdout
    assert "refused: 12 reasons" in shown and shown.count("change:") == 12


def test_what_is_refused_next_is_shown() -> None:
    """The documented checks stop; this does not."""
    text = with_sections(parallel_config={"decode_context_parallel_size": 1}, scheduler_config={"max_num_seqs": 4})
    shown = check("-", stdin=text).stdout
    assert shown.index("refused: 1 reason ") < shown.index("refused next, once those are mended:")
    assert "DCP1 without M1" in shown and "nearest served settings" in shown and "7 x 2 DCP8" in shown


def test_without_the_switch_it_is_not_served() -> None:
    """vLLM would run its own decode, which is no success of this check."""
    deployment = json.loads(EXAMPLE)
    deployment["additional_config"] = {"decode_backnd": "latency_specialized"}
    result = check("-", stdin=json.dumps(deployment))
    assert result.exit_code == 1 and result.stdout.startswith("not asked for: the deployment would be served")
    assert "did you mean `decode_backend`?" in result.stdout


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "`$`: the input is empty"),
        ("  \n", "`$`: the input is empty"),
        ("nonsense", "`$`: expected ident"),
        ("[]", "`$`"),
        ("{}", "`$`: missing field `model_config`"),
        (EXAMPLE.replace('"speculative_config"', '"speculative"'), "`$`: missing field `speculative_config`"),
        (with_sections(scheduler_config={"max_num_seqs": -1}), "`$.scheduler_config.max_num_seqs`: invalid value"),
        (with_sections(scheduler_config={"max_num_seqs": 10**30}), "`$.scheduler_config.max_num_seqs`: "),
        (with_sections(parallel_config={"enable_eplb": "no"}), "`$.parallel_config.enable_eplb`: invalid type"),
        (EXAMPLE.replace('"compute_units": 256', '"compute_units": NaN'), "`$.platform.compute_units`: "),
        (with_sections(additional_config={"decode_backend": "fast"}), "decode_backend must be 'auto' or"),
        ("[" * 100_000, "`$"),
    ],
    ids=range(12),
)
def test_bad_input_is_one_error_with_its_path(text: str, path: str) -> None:
    """Exit status 2, a hint, no traceback, nothing on stdout."""
    result = check("-", stdin=text)
    assert result.exit_code == 2 and result.stdout == ""
    first, second, *rest = result.stderr.splitlines()
    assert first.startswith(f"error: {path}") and second.startswith("hint: ") and not rest, result.stderr


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """Missing, a folder, too large, no text."""
    large, binary = tmp_path / "large.json", tmp_path / "binary.json"
    with large.open("wb") as stream:
        stream.truncate(100 << 20)
    binary.write_bytes(b'{"a": "\xff"}')
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "directory"), (large, "larger than 16 MiB"),
                      (binary, "is no UTF-8: invalid start byte at byte 7")):
        result = check(path)
        assert result.exit_code == 2 and why in result.stderr and str(path) in result.stderr
    assert check().exit_code == 2 and "no deployment given" in check().stderr


def test_an_unknown_key_is_a_warning_that_names_the_nearest() -> None:
    """The deployment is examined all the same."""
    result = check("-", "--json", stdin=with_sections(scheduler_config={"max_num_seq": 4}))
    assert result.exit_code == 0
    assert "`$.scheduler_config.max_num_seq` is not read; did you mean `max_num_seqs`?" in json.loads(
        result.stdout)["warnings"]


def test_the_schema_has_every_key_of_the_example() -> None:
    """And a description for each section."""
    schema, example = json.loads(check("--schema").stdout), json.loads(check("--example").stdout)
    assert set(example) <= set(schema["properties"])
    assert set(schema["required"]) == {"model_config", "parallel_config", "cache_config", "scheduler_config",
                                       "speculative_config"}
    assert all("description" in section or "$ref" in section for section in schema["properties"].values())


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_serve_arguments_need_vllm() -> None:
    """And never fall back to a parser of ours."""
    result = check("--", "moonshotai/Kimi-K3", "-tp", "8")
    assert result.exit_code == 2 and "vLLM is not installed here" in result.stderr
    result = check("file.json", "--", "model")
    assert result.exit_code == 2 and "give one of them" in result.stderr


def test_neither_torch_nor_vllm_is_imported(tmp_path: Path) -> None:
    """What makes the answer quick."""
    path = tmp_path / "deployment.json"
    path.write_text(EXAMPLE)
    script = ("import sys\nfrom kimi_k3_specdec.cli import main\nsys.argv = ['x', 'check', sys.argv[1]]\n"
              "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
              "assert not {'torch', 'vllm', 'numpy'} & set(sys.modules), 'imported'\n")
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["FILE"], ["FILE", "--json"], ["--json", "FILE"], ["FILE", "--no-debug"],
                                   ["--json", "--json", "FILE"], ["BAD"], ["BAD", "--json"], ["NONE"], ["FILE", "FILE"],
                                   ["--jsn", "FILE"], []], ids=" ".join)
def test_the_short_way_says_what_the_parser_says(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check FILE` does without the command-line parser; nobody can tell."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(EXAMPLE)
    bad.write_text(with_sections(scheduler_config={"max_num_seqs": 16}))
    places = {"FILE": str(good), "BAD": str(bad), "NONE": str(tmp_path / "none")}
    words = [places.get(word, word) for word in words]
    monkeypatch.setattr(sys, "argv", ["kimi-k3-specdec", "check", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    shown = capsys.readouterr()
    result = check(*words)
    assert (ended.value.code or 0, shown.out) == (result.exit_code, result.stdout)
    assert answer.plain(words) is not None or result.exit_code in (0, 2)
    if answer.plain(words) is not None:
        assert shown.err == result.stderr


def fuzzed(case: tuple[int, int, bytes]) -> None:
    """The example with bytes replaced: an answer or an error with a path, never a panic (which is no `Exception`)."""
    at, length, filler = case
    data = EXAMPLE.encode()
    text = (data[:at] + filler + data[at + length :]).decode(errors="replace")
    try:
        json.loads(_native.examine(text))
    except _native.Refused as error:
        assert str(error).startswith("`$") or "must be" in str(error)


FILLERS = st.binary(max_size=12) | st.sampled_from([b"null", b"[]", b"{}", b"-1", b"1e400", b'""', b"[[[", b"\\"])
CASES = st.tuples(st.integers(0, len(EXAMPLE)), st.integers(0, 40), FILLERS)


@given(CASES)
@settings(max_examples=500, deadline=None)
def test_nonsense_never_panics(case: tuple[int, int, bytes]) -> None:
    """A few hundred cases at every run."""
    fuzzed(case)


@pytest.mark.slow
def test_nonsense_never_panics_for_a_minute() -> None:
    """Five million cases, most of them near enough to a deployment to get past the parser's first lines."""
    draw = Random(0)
    values = [b"null", b"[]", b"{}", b"-1", b"1e400", b'""', b"[[[", b"\\", b"1e9", b"true", b"18446744073709551616"]
    starts = [match.start() for match in re.finditer(rb'[\[{:,"\d]', EXAMPLE.encode())]
    for _ in range(5_000_000):
        at = draw.choice(starts) + draw.randrange(2)
        filler = draw.choice(values) if draw.random() < 0.5 else draw.randbytes(draw.randrange(6))
        fuzzed((at, draw.choice((0, 1, 2, 4, 20)), filler))
