"""Reads the machine's facts, each as it is found; what could not be known is None. No fact is judged here."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import _native
from ..kernels import KernelPackageError, code_object, manifest
from .peer import import_page

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Places:
    """Where things are looked for; tests look elsewhere."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    rocm: Path = Path("/opt/rocm")


def gather(places: Places, warn: Warn) -> dict[str, Any]:
    """All facts, in the form that `_native.doctor` reads; `warn` takes sentences about what could not be read."""
    return {
        "gpus": _gpus(places.sys, warn),
        "device_node": _device_node(places.dev / "kfd"),
        "hip": json.loads(_native.probe_hip(import_page)),
        "amdgpu": _version(_read(places.sys / "module/amdgpu/version"), "the amdgpu driver", warn),
        "rocm": _rocm(places.rocm, warn),
        "packages": {
            "vllm": _package(["vllm"], warn),
            "aiter": _package(["amd-aiter", "aiter"], warn),
            "aiter_importable": importlib.util.find_spec("aiter") is not None,
            "torch": _package(["torch"], warn),
        },
        "environment": {name: os.environ.get(name) for name in _native.doctor_variables()},
        "namespaces": _namespaces(places.proc / "self/ns"),
        "code_objects": _code_objects(),
    }


def _gpus(sys: Path, warn: Warn) -> list[dict[str, Any]] | None:
    try:
        return json.loads(_native.read_topology(sys))
    except _native.Refused as error:
        warn(f"GPUs are not known: {error}")
        return None


def _device_node(path: Path) -> str:
    if not path.exists():
        return "absent"
    return "open" if os.access(path, os.R_OK | os.W_OK) else "denied"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _version(text: str | None, of: str, warn: Warn) -> str | None:
    if text is None or _native.is_version(text):
        return text
    warn(f"the version of {of} is not known: `{text}` is of another form")
    return None


def _rocm(root: Path, warn: Warn) -> str | None:
    """From the tree that ROCM_PATH names, else the usual one, else the wheels that hold ROCm."""
    for tree in (Path(os.environ.get("ROCM_PATH") or root), root):
        if text := _read(tree / ".info/version"):
            return _version(text, f"ROCm in `{tree}`", warn)
    return _package(["rocm-sdk-core", "rocm"], warn)


def _package(names: Iterable[str], warn: Warn) -> str | None:
    """The installed version, by metadata alone: importing torch or vLLM takes seconds and may start a driver."""
    for name in names:
        try:
            return _version(metadata.version(name), f"`{name}`", warn)
        except metadata.PackageNotFoundError:
            continue
    return None


def _namespaces(folder: Path) -> dict[str, int] | None:
    try:
        return {name: (folder / name).stat().st_ino for name in ("ipc", "pid", "net")}
    except OSError:
        return None


def _code_objects() -> dict[str, Any]:
    try:
        entries = manifest()["objects"]
        for entry in entries:
            code_object(entry["name"])
        return {"verified": {entry["name"]: entry["sha256"] for entry in entries}}
    except KernelPackageError as error:
        return {"unusable": {"found": str(error), "hint": error.hint}}
