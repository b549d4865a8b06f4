"""`kimi-k3-specdec kernels`: what it lists, what it finds wrong, and whether its counts are true."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from kimi_k3_specdec.cli import application
from kimi_k3_specdec.kernels import PACKAGE, manifest, shares

STAGES_OF_WEIGHTS = {"in_proj", "kda", "o_proj", "moe_in", "expert_up", "expert_down", "shared_down", "up"}


def kernels(*words: object) -> Result:
    """`kimi-k3-specdec kernels WORDS`."""
    return CliRunner().invoke(application(["kernels"]), ["kernels", *map(str, words)])


def counted(*words: object, exit_code: int = 0) -> dict[str, Any]:
    """The JSON of `kernels count WORDS`."""
    result = kernels("count", "--json", *words)
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the code objects that may be damaged."""
    shutil.copytree(PACKAGE, tmp_path / "kernels", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return tmp_path / "kernels"


def test_the_list_agrees_with_what_the_build_read() -> None:
    """`kernels/code_object.py` reads metadata with a parser of its own."""
    rows = json.loads(kernels("list", "--json").stdout)
    listed = {(entry["name"], symbol["name"]): symbol
              for entry in manifest()["objects"] for symbol in entry["symbols"]}
    assert [(row["name"], row["symbol"]) for row in rows] == list(listed)
    assert {row["symbol"] for row in rows} == {"layers", "self_test"}
    for row in rows:
        symbol, path = listed[row["name"], row["symbol"]], PACKAGE / row["file"]
        assert {key: row[key] for key in ("vgprs", "agprs", "sgprs", "lds_bytes")} == {
            key: symbol[key] for key in ("vgprs", "agprs", "sgprs", "lds_bytes")}
        assert (row["spills"], row["target"]) == (0, "gfx950")
        assert row["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert row["file_bytes"] == path.stat().st_size > row["code_bytes"] > 4 * symbol["instructions"]
    table = kernels("list")
    assert table.exit_code == 0 and all(row["sha256"] in table.stdout for row in rows)


def test_what_is_shipped_is_intact() -> None:
    """A line for the manifest and each object."""
    result = kernels("verify")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + len(manifest()["objects"])
    assert all(line.startswith("ok ") for line in lines)


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the manifest."""
    path = folder / "manifest.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def patch(folder: Path, *words: int) -> None:
    """Overwrites the first instructions of a code object, and makes the manifest agree with the file."""
    path = folder / "layers_nano_tp2.co"
    image = bytearray(path.read_bytes())
    sections, size, count, names = struct.unpack_from("<Q", image, 40)[0], *struct.unpack_from("<3H", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, sections + i * size) for i in range(count)]
    text = next(h for h in headers if image[headers[names][4] + h[0] :].startswith(b".text\0"))
    struct.pack_into(f"<{len(words)}I", image, text[4], *words)
    path.write_bytes(image)
    edit(folder, lambda m: entry(m).__setitem__("sha256", hashlib.sha256(image).hexdigest()))


def entry(found: dict[str, Any]) -> dict[str, Any]:
    """Nano's on two ranks."""
    return next(e for e in found["objects"] if e["name"] == "layers_nano_tp2")


NANO = "layers_nano_tp2.co"


@pytest.mark.parametrize(("damage", "topic", "found"), [
    (lambda f: (f / NANO).unlink(), "layers_nano_tp2", "cannot be read: No such file"),
    (lambda f: (f / NANO).write_bytes((f / NANO).read_bytes() + b"\0"), "layers_nano_tp2", "its sha256 is "),
    (lambda f: (f / NANO).write_bytes((f / NANO).read_bytes()[:5000]), "layers_nano_tp2", "not a complete ELF file"),
    (lambda f: (f / "stray.co").write_bytes(b""), "stray.co", "the manifest does not list it"),
    (lambda f: edit(f, lambda m: m.update(target="gfx942")), "manifest", "its target is `gfx942`"),
    (lambda f: edit(f, lambda m: m.update(abi_hash="0x1")), "manifest", "its abi_hash is `0x1`"),
    (lambda f: edit(f, lambda m: entry(m)["symbols"][0].update(vgprs=65)), "layers_nano_tp2",
     "`layers` has vgprs 64, the manifest says 65"),
    (lambda f: edit(f, lambda m: entry(m)["symbols"][0].update(name="other")), "layers_nano_tp2",
     "the manifest does not list its kernel `layers`"),
    (lambda f: patch(f, 0xDC500000, 0x00000000), "layers_nano_tp2", "1 flat_ instructions: `flat_load_dword v0, v[0"),
    (lambda f: patch(f, 0xDC504000, 0x007F0000), "layers_nano_tp2", "1 scratch_ instructions: `scratch_load_dword v0"),
    (lambda f: patch(f, 0xBF900001), "layers_nano_tp2", "1 instructions cannot be executed"),
], ids=["missing", "longer", "truncated", "stray", "target", "abi", "registers", "symbol", "flat", "scratch",
        "unknown"])
def test_damage_is_found_and_named(folder: Path, damage: Callable[[Path], None], topic: str, found: str) -> None:
    """On its own line; the others stay ok."""
    damage(folder)
    result = kernels("verify", "--folder", folder)
    assert result.exit_code == 1, result.output
    problems = [line for line in result.stdout.splitlines() if line.startswith("problem")]
    assert len(problems) == 1 and problems[0].split()[1] == topic and found in problems[0], result.stdout
    assert sum(line.startswith("ok ") for line in result.stdout.splitlines()) >= len(manifest()["objects"])
    assert "hint: " in result.stdout


@pytest.mark.parametrize("command", ["list", "verify"])
@pytest.mark.parametrize("text", [None, "{", "[]", '{"objects": [1]}'])
def test_no_manifest_is_an_error(folder: Path, command: str, text: str | None) -> None:
    """Exit status 2: there is nothing to judge."""
    (folder / "manifest.json").unlink()
    if text is not None:
        (folder / "manifest.json").write_text(text)
    result = kernels(command, "--folder", folder)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith("error: `") and "\nhint: " in result.stderr


def test_an_object_that_cannot_be_read_is_listed_as_such(folder: Path) -> None:
    """With the others."""
    (folder / NANO).write_bytes(b"\x7fELF")
    result = kernels("list", "--folder", folder)
    assert result.exit_code == 1, result.output
    assert "problem: `layers_nano_tp2`: the code object is not a complete ELF" in result.stdout
    assert "layers_k3_tp8" in result.stdout


def test_torch_is_not_imported() -> None:
    """What makes all but a counted run quick."""
    script = ("import sys\nfrom kimi_k3_specdec.cli import main\nsys.argv = ['x', 'kernels', *sys.argv[1:]]\n"
              "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
              "assert not {'torch', 'vllm', 'numpy'} & set(sys.modules), 'imported'\n")
    for words in (["list"], ["verify"], ["count", "--static"], ["count", "--help"]):
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def nano_report(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """One counted layer and its picture."""
    path = tmp_path_factory.mktemp("svg") / "count.svg"
    return counted("--svg", path), path.read_text()


def test_counts_are_those_of_the_shapes(nano_report: tuple[dict[str, Any], str]) -> None:
    """Matrix instructions and loads of weights as the tiles' shapes give them, without the tables' own arithmetic."""
    found = nano_report[0]["counted"]
    assert found["equal"] and found["agrees"] and found["masked_mfma"] == 0
    stages = {stage["stage"]: stage for stage in found["stages"]}
    (experts,) = found["experts"].values()
    # Nano on two ranks: hidden and latent 256 wide, 2 heads of 128, experts' and shared intermediate 128 and 256.
    tiles = {"in_proj": (4 * 256 + 128 + 2 + 14) // 16, "o_proj": 16, "shared_down": 16, "up": 8,
             "moe_in": (16 + 128 + 2 * 256) // 16}
    for name, count in tiles.items():
        assert (stages[name]["tasks"], stages[name]["mfma"]) == (count, count * 256 // 32), name
        assert stages[name]["weight_bytes"] == count * 16 * 256 * 2, name
    # Two requests x two heads x eight chunks, each with its head's 128 x 128 of f_b.
    assert (stages["kda"]["tasks"], stages["kda"]["weight_bytes"]) == (32, 32 * 128 * 128 * 2)
    # 256 gate and up rows of every expert, 256 of K; then 256 rows, 128 of K.
    assert stages["expert_up"]["mfma"] == experts * 256 // 16 * 256 // 128
    assert stages["expert_down"]["mfma"] == experts * 256 // 16
    assert {name for name, stage in stages.items() if stage["mfma"]} == STAGES_OF_WEIGHTS
    total = sum(stage["instructions"] for stage in found["stages"])
    # A rank's sums are rounded means of the ranks'.
    assert total == pytest.approx(found["wave_instructions"] / 2, abs=len(stages))


def test_no_poll_waits_for_weights(nano_report: tuple[dict[str, Any], str]) -> None:
    """The polling wave has none in flight, and every GEMV stage's workgroups have some at their barrier."""
    for stage in nano_report[0]["counted"]["stages"]:
        assert stage["polls_behind_weights"] == 0, stage["stage"]
        if stage["stage"] in {"in_proj", "o_proj", "moe_in", "expert_down", "up"}:
            assert stage["weights_in_flight"][0] > 0, stage["stage"]


def test_hops_and_bars(nano_report: tuple[dict[str, Any], str]) -> None:
    """What holds is what is within its bar."""
    report = nano_report[0]
    assert [hop["region"] for hop in report["hops"]] == [
        "attention_dots", "attention_x", "proj", "core", "attention_out", "mlp_dots", "mlp_x", "logits",
        "expert_hidden", "latent_out", "latent_z", "output"]
    assert [width["rows"] for width in report["balance"]] == [1, 4, 8, 16]
    for width in report["balance"]:
        assert width["layer_holds"] == (width["layer"]["ratio"] <= 1.05)
        expected = width["expert_phase"]["ratio"] <= 1.10 if width["rows"] >= 4 else None
        assert width["expert_phase_holds"] is expected


def test_the_picture_shows_every_workgroup_of_every_stage(nano_report: tuple[dict[str, Any], str]) -> None:
    """Well-formed, a cell each, with its bytes."""
    report, text = nano_report
    root = ElementTree.fromstring(text)
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    grid = len(report["counted"]["cta_bytes"])
    assert grid == 8 and len(titles) == (len(STAGES_OF_WEIGHTS) + 1) * grid
    sums = [int(title.split(": ")[1].split()[0].replace(",", "")) for title in titles]
    assert sum(sums[:-grid]) == sum(sums[-grid:]) == sum(report["counted"]["cta_bytes"])


def test_several_layers_and_an_mla_half() -> None:
    """Counts of a launch are its layers'; a half has no attention stage."""
    both = counted("--layers", "3-4", "--requests", 1, "--speculative-tokens", 1)
    assert both["kind"] == "whole" and both["counted"]["agrees"]
    half = counted("--layers", 5, "--requests", 1, "--speculative-tokens", 1)
    names = [stage["stage"] for stage in half["counted"]["stages"]]
    assert half["kind"] == "ffn" and half["counted"]["agrees"] and len(half["hops"]) == 8
    assert "kda" not in names and "in_proj" not in names and "o_proj" in names


def test_a_table_that_says_something_else_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tile given to a neighbour: the stage is named, and the exit status says so."""
    share = shares.share

    def moved(*args: Any, **kwargs: Any) -> dict[str, Any]:
        found = share(*args, **kwargs)
        stage = next(stage for stage in found["stages"] if stage["stage"] == "o_proj")
        stage["cta_bytes"][0] += 16
        stage["cta_bytes"][1] -= 16
        return found

    monkeypatch.setattr(shares, "share", moved)
    result = kernels("count", "--requests", 1, "--speculative-tokens", 1)
    assert result.exit_code == 1 and "NOT what the task table says in o_proj" in result.stdout


def test_what_misses_its_bar_is_said() -> None:
    """Kimi-K3's table, computed at once; a width that a launch refuses is marked."""
    result = kernels("count", "--geometry", "k3", "--static")
    assert result.exit_code == 0 and "1 x 1 (no step)" in result.stdout
    report = counted("--geometry", "k3", "--static")
    missed = [width["rows"] for width in report["balance"] if not width["layer_holds"]]
    for rows in missed:
        assert f"missed: at {rows} rows the layer has max / mean" in result.stdout
    assert result.stdout.count("missed: ") >= len(missed)
    # One routing is not all of them: the worst is printed too, and is at least as bad.
    for width in report["balance"]:
        for key in ("layer", "expert_phase"):
            assert width[f"worst_{key}"]["ratio"] >= width[key]["ratio"]
            assert 16 <= width[f"worst_{key}"]["experts"] <= 16 * width["rows"]
        if width["expert_phase_holds"] and width["worst_expert_phase"]["ratio"] > 1.10:
            assert f"missed by some routings: at {width['rows']} rows with" in result.stdout
    assert "12 hops on the critical path" in result.stdout


@pytest.mark.parametrize(("words", "error"), [
    (("--geometry", "k4"), "unknown geometry `k4`"),
    (("--ranks", 3), "heads 4 is not a multiple of 3"),
    (("--speculative-tokens", 0), "a step without drafts is not a verify step"),
    (("--requests", 4, "--speculative-tokens", 4), "20 rows"),
    (("--layers", "0-1"), "do not serve 0"),
    (("--layers", "2-3"), "are 2 launches: attention runs in between, before layer 3"),
    (("--layers", "x"), "`x` is no range of layers"),
    (("--static", "--svg", "a.svg"), "`--static` counts nothing"),
    (("--svg", "no/such/folder/a.svg"), "there is no folder"),
])
def test_bad_input(words: tuple[object, ...], error: str) -> None:
    """One error with a hint, exit status 2, before anything runs."""
    result = kernels("count", *words)
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert result.stderr.startswith("error: ") and error in result.stderr and "\nhint: " in result.stderr
