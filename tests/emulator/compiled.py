"""Kernels of a test, compiled with clang and without any header of ours."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CLANG = "clang-22"


@functools.cache
def compile_hip(source: str, *, target: str = "gfx950", flags: tuple[str, ...] = ()) -> bytes:
    """The code object of a HIP C++ source; skips where no clang is installed."""
    if shutil.which(CLANG) is None:
        pytest.skip(f"no {CLANG}")
    with tempfile.TemporaryDirectory() as folder:
        name = hashlib.sha256(source.encode()).hexdigest()[:12]
        path, out = Path(folder, f"{name}.hip"), Path(folder, f"{name}.co")
        path.write_text(source)
        subprocess.run([
            CLANG, "-x", "hip", f"--offload-arch={target}", "--offload-device-only", "--no-gpu-bundle-output",
            "-nogpuinc", "-nogpulib", "-O3", "-std=c++20", "-gline-tables-only", "-Wall",
            "-Wno-unused-function", "-Werror", *flags, "-c", str(path), "-o", str(out)], check=True)
        return out.read_bytes()
