"""The fake HIP library, `crates/fake-hip`: found or built in a checkout, and set up for a run. No wheel has it."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import subprocess
from pathlib import Path

from ..errors import UserError
from .options import RunOptions

VARIABLE = "SPECDEC_FAKE_HIP"
NAME = "libfake_hip.so"
CHECKOUT = Path(__file__).resolve().parents[3]
CRATES = ("fake-hip", "specdec-emu", "specdec-core")
"""What the library is made of."""
NUM_KINDS = 9
"""Kinds of objects that `fake_hip_live` counts."""


def library() -> Path:
    """The library: the one that SPECDEC_FAKE_HIP names, else cargo's. Raises UserError."""
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise UserError(f"no fake HIP library: {VARIABLE} names `{named}`, which is no file",
                            f"name the library, or unset {VARIABLE}")
        return Path(named)
    if not (CHECKOUT / "crates" / "fake-hip").is_dir():
        raise UserError("no fake HIP library: it is for tests, and only a checkout of kimi-k3-specdec has its sources",
                        f"run in a checkout, or set {VARIABLE} to the library's path")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or CHECKOUT / "target")
    made = CHECKOUT / target / "release" / NAME
    if not made.exists() or made.stat().st_mtime < _newest_source():
        _build()
    return made


def _newest_source() -> float:
    """When a source was changed last."""
    sources = [source for crate in CRATES for source in (CHECKOUT / "crates" / crate / "src").rglob("*.rs")]
    return max(source.stat().st_mtime for source in sources)


def _build() -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise UserError(f"no fake HIP library: `{NAME}` is not built, and there is no `cargo` to build it",
                        f"install Rust with rustup, or set {VARIABLE} to the library's path")
    command = [cargo, "build", "--quiet", "--release", "--package", "fake-hip"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"no fake HIP library: `cargo build --package fake-hip` failed: {done.stderr.strip()}",
                        "build the crate by hand and look at its errors")


def fake_hip(options: RunOptions) -> Path:
    """The library with a fresh machine of as many devices as the run has ranks. Raises UserError if another run of this
    process still uses it.
    """
    path = library()
    settings = {"seed": options.schedule_seed, "schedule": options.schedule}
    reset(path, options.ranks, settings)
    return path


def reset(path: Path, devices: int, settings: dict[str, object]) -> None:
    """Lets the library's next call make a machine of so many devices: it has one for the process."""
    fake = ctypes.CDLL(str(path))
    live = (ctypes.c_uint64 * NUM_KINDS)()
    # What holds the devices of an earlier run may be in a cycle.
    gc.collect()
    fake.fake_hip_live(live, ctypes.c_size_t(NUM_KINDS))
    if any(live):
        raise UserError(f"the fake HIP library is in use: {sum(live)} of its objects are alive",
                        "end the other run of this process first")
    os.environ["FAKE_HIP_DEVICES"], os.environ["FAKE_HIP_OPTIONS"] = str(devices), json.dumps(settings)
    fake.fake_hip_reset()
