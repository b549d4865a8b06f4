"""What cannot run is refused in one error with a hint, exit status 2, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import kimi_k3_specdec
from kimi_k3_specdec.reference import checkpoint
from kimi_k3_specdec.reference.geometry import NANO

from .conftest import invoke, refused

PACKAGE = Path(kimi_k3_specdec.__file__).parent


@pytest.mark.parametrize(("words", "error"), [
    (("--geometry", "k4"), "unknown geometry `k4` (known: k3, nano, nano-deep)"),
    (("--ranks", 3), "heads 4 is not a multiple of 3"),
    (("--ranks", 0), "--ranks 0"),
    (("--speculative-tokens", 0), "a step without drafts is not a verify step"),
    (("--requests", 4, "--speculative-tokens", 4), "20 rows: a launch serves at most 16"),
    (("--requests", 9, "--speculative-tokens", 1), "9 requests"),
    (("--requests", -1), "--requests -1"),
    (("--steps", 0), "--steps 0"),
    (("--schedule-seed", -5), "--schedule-seed -5"),
    (("--device", "cuda"), "device `cuda` cannot be used"),
    (("--device", "fake-hip", "--check", "races"), "--check works in the emulator only"),
    (("--device", "fake-hip", "--processes"), "--processes works in the emulator only"),
    (("--device", "fake-hip", "--geometry", "k3", "--ranks", 8, "--layers", 13), "`k3` runs in the emulator only"),
    (("--device", "tpu"), "unknown device `tpu`"),
    (("--layers", "0-3"), "the kernels do not serve 0 of `nano`"),
    (("--layers", "4-9"), "do not serve 6-9"),
    (("--layers", "x"), "`x` is no range of layers"),
    (("--fault", "gremlin@0"), "`gremlin@0` is no fault"),
    (("--fault", "tag@2"), "there is no rank 2"),
    (("--geometry", "k3", "--ranks", 8), "its layers run a launch at a time"),
    (("--geometry", "k3", "--ranks", 8, "--layers", "13-16"), "are 2 launches: attention runs in between, before "
                                                              "layer 15"),
    (("--geometry", "k3", "--ranks", 8, "--layers", "13", "--fault", "tag@0"), "no checkpoint and no fault apply"),
    (("--checkpoint", "does-not-exist"), "no `*.safetensors` in it"),
])
def test_options(words: tuple[object, ...], error: str) -> None:
    """Each names what was asked for and what there is."""
    assert error in refused(*words)


def test_debug_shows_the_traceback() -> None:
    """The same error, raised."""
    result = invoke("run", "--geometry", "k4", "--debug")
    assert "unknown geometry" in str(result.exception) and result.exit_code != 0


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A checkpoint that may be damaged."""
    checkpoint.make(tmp_path / "made", NANO, 0)
    return tmp_path / "made"


def test_truncated_checkpoint(made: Path) -> None:
    """The file and its size."""
    file = made / checkpoint.TENSOR_FILE
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    assert "is truncated or damaged" in refused("--checkpoint", made)


def test_wrong_tensors(made: Path) -> None:
    """Every tensor that does not fit, at once."""
    file = made / checkpoint.TENSOR_FILE
    tensors = load_file(file)
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.float32)
    save_file(tensors, file)
    error = refused("--checkpoint", made)
    assert "`model.norm.weight` is BF16 [255], BF16 [256] is needed" in error
    assert "`lm_head.weight` is F32" in error


def test_a_checkpoint_of_another_geometry(made: Path) -> None:
    """Its config says so."""
    assert "`num_hidden_layers` is 6, `nano-deep` needs 14" in refused("--geometry", "nano-deep", "--checkpoint", made)


def test_a_given_checkpoint_is_used_and_kept(made: Path) -> None:
    """The same tokens as the seeded run that makes it itself."""
    kept = sorted(made.iterdir())
    runs = [invoke("run", "--json", "--steps", 1, *words) for words in ((), ("--checkpoint", made))]
    assert [r.exit_code for r in runs] == [0, 0]
    assert json.loads(runs[0].stdout)["tokens"] == json.loads(runs[1].stdout)["tokens"]
    assert sorted(made.iterdir()) == kept


def damaged_package(root: Path) -> Path:
    """A copy of this package whose code objects may be changed."""
    package = root / "kimi_k3_specdec"
    package.mkdir(parents=True)
    for entry in PACKAGE.iterdir():
        if entry.name != "kernels":
            (package / entry.name).symlink_to(entry)
    shutil.copytree(PACKAGE / "kernels", package / "kernels")
    return package / "kernels"


@pytest.mark.parametrize(("damage", "error"), [
    (lambda folder: (folder / "layers_nano_tp2.co").unlink(), "is missing: the manifest lists it"),
    (lambda folder: (folder / "layers_nano_tp2.co").write_bytes(b"\x7fELF"), "is altered: its sha256 is"),
    (lambda folder: (folder / "manifest.json").unlink(), "`manifest.json` is missing"),
    (lambda folder: _edit(folder / "manifest.json", target="gfx942"), "is foreign: its target is `gfx942`"),
], ids=["missing", "altered", "no-manifest", "foreign"])
def test_code_objects(tmp_path: Path, damage: object, error: str) -> None:
    """A package without the right code objects; the run leaves no temporary file either."""
    folder = damaged_package(tmp_path / "site")
    damage(folder)  # type: ignore[operator]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", "from kimi_k3_specdec.cli import main; main()", "run", "--steps", "1"]
    environment = os.environ | {"PYTHONPATH": str(folder.parent.parent), "TMPDIR": str(temporary)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and result.stdout == "" and "Traceback" not in result.stderr
    assert error.replace("`manifest.json`", "manifest.json`") in result.stderr and "\nhint: " in result.stderr
    assert list(temporary.iterdir()) == []


def _edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
