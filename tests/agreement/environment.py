"""The environment that holds the real vLLM, apart from the one that runs the tests.

`python tests/agreement/environment.py` makes it where it is missing and prints its Python.

vLLM pins its own torch, so it cannot share an environment with the package's. `SPECDEC_VLLM_ENV` names a ready one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
VLLM = "vllm==0.33.0"
CACHE = HERE.parent.parent / ".venv-vllm"


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def folder() -> Path:
    """Where the environment of these requirements belongs."""
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + VLLM.encode() + sys.version.encode()).hexdigest()
    return CACHE / key[:12]


def run(step: str, *command: str | Path, progress: Callable[[str], None]) -> None:
    """Runs one step; its own output is kept for the error."""
    started = time.monotonic()
    progress(f"==> {step}")
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{step} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    progress(f"    done after {time.monotonic() - started:.0f} s")


def install(home: Path, progress: Callable[[str], None]) -> None:
    """Makes the environment `home`; `complete` in it is written last."""
    python = home / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    progress(f"==> {home}: an environment with vLLM, 6.6 GB, about two minutes")
    run("a virtual environment", sys.executable, "-m", "venv", "--clear", home, progress=progress)
    run("what vLLM imports (torch's CUDA libraries are most of it)", *pip, "-r", REQUIREMENTS, progress=progress)
    run(VLLM, *pip, "--no-deps", VLLM, progress=progress)
    (home / "complete").touch()


def python(progress: Callable[[str], None] = say) -> Path:
    """The Python of an environment with vLLM, which is made where it is missing."""
    if given := os.environ.get("SPECDEC_VLLM_ENV"):
        return Path(given) / "bin" / "python"
    home = folder()
    CACHE.mkdir(exist_ok=True)
    # Git, and what asks git, then leaves the folder alone.
    (CACHE / ".gitignore").write_text("*\n", encoding="utf-8")
    with (CACHE / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            install(home, progress)
    return home / "bin" / "python"


if __name__ == "__main__":
    print(python())
