"""One mistake in the kernels, and the code object that has it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
BUILD = "layers_nano_tp2"


@dataclass(frozen=True)
class Edit:
    """One change: `old` stands exactly once in the file."""

    file: str
    old: str
    new: str

    def apply(self, kernels: Path) -> None:
        """Changes a copy of the kernels."""
        path = kernels / self.file
        text = path.read_text()
        count = text.count(self.old)
        assert count == 1, f"`{self.file}` has {count} times {self.old!r}; mend the mutant"
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Mutant:
    """A mistake."""

    name: str
    breaks: str
    """What no longer holds, in words."""
    edits: tuple[Edit, ...]
    is_race: bool = False
    """Whether the race check must find it, be the result right or not."""

    def copy(self, kernels: Path) -> None:
        """The kernels with the mistake, as a new folder; fails if they have no longer what it changes."""
        shutil.copytree(KERNELS, kernels, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in self.edits:
            edit.apply(kernels)

    def build(self, cache: Path) -> bytes:
        """The code object of these kernels with the mistake; `cache` keeps those of earlier runs by content."""
        with tempfile.TemporaryDirectory(prefix="specdec-mutant-") as folder:
            kernels = Path(folder) / "kernels"
            self.copy(kernels)
            kept = cache / f"{_digest(kernels)}.co"
            if not kept.is_file():
                _compile(kernels, Path(folder) / "out")
                shutil.copy(Path(folder) / "out" / f"{BUILD}.co", kept)
            return kept.read_bytes()


def _digest(kernels: Path) -> str:
    files = {str(path.relative_to(kernels)): hashlib.sha256(path.read_bytes()).hexdigest()
             for path in sorted(kernels.rglob("*")) if path.is_file()}
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def _compile(kernels: Path, out: Path) -> None:
    command = [sys.executable, kernels / "build.py", "--kernels", kernels, "--out", out, "--only", BUILD]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
