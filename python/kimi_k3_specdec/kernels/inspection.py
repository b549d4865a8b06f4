"""What the packaged code objects hold, and whether they are the ones that may run: manifest against files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kimi_k3_specdec import _native
from kimi_k3_specdec.errors import UserError
from kimi_k3_specdec.kernels import PACKAGE, REBUILD, SCHEMA, TARGET, KernelPackageError

REGISTERS = ("vgprs", "agprs", "sgprs", "lds_bytes", "kernarg_bytes")
"""Fields that the manifest and the code object both have of a kernel."""


@dataclass(frozen=True)
class Finding:
    """One line of `kernels verify`."""

    state: str
    """`ok` or `problem`."""
    topic: str
    found: str
    hint: str | None = None


def read_manifest(folder: Path = PACKAGE) -> dict[str, Any]:
    """The manifest of `folder` as it is, foreign ones too. Raises `KernelPackageError` if it is none at all."""
    path = folder / "manifest.json"
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise KernelPackageError(f"`{path}` cannot be read", error.strerror or str(error)) from error
    except ValueError as error:
        raise KernelPackageError(f"`{path}` is altered", f"it is no JSON ({error})") from error
    objects = found.get("objects") if isinstance(found, dict) else None
    if not isinstance(objects, list) or not all(_is_entry(entry) for entry in objects):
        raise KernelPackageError(f"`{path}` is altered", "it lists no code objects with name, file and sha256")
    return found


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("name", "file", "sha256"))


def listing(folder: Path = PACKAGE) -> list[dict[str, Any]]:
    """A row for every kernel of every code object: names from the manifest, everything else from the object."""
    manifest = read_manifest(folder)
    rows = []
    for entry in manifest["objects"]:
        common = {"name": entry["name"], "file": entry["file"], "geometry": entry.get("geometry"),
                  "ranks": entry.get("ranks")}
        try:
            inspected = json.loads(_native.inspect(_read(folder / entry["file"])))
        except (UserError, _native.MachineError) as error:
            rows.append(common | {"problem": str(error)})
            continue
        rows += [common | _row(kernel, inspected) for kernel in inspected["kernels"]]
    return rows


def _row(kernel: dict[str, Any], inspected: dict[str, Any]) -> dict[str, Any]:
    return {
        "symbol": kernel["symbol"], "target": TARGET, "vgprs": kernel["vgprs"], "agprs": kernel["agprs"],
        "sgprs": kernel["sgprs"], "lds_bytes": kernel["lds_bytes"],
        "spills": kernel["vgpr_spills"] + kernel["sgpr_spills"], "code_bytes": kernel["code_bytes"],
        "file_bytes": inspected["file_bytes"], "sha256": inspected["sha256"], "problem": None,
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KernelPackageError(f"`{path}` cannot be read", error.strerror or str(error)) from error


def verify(folder: Path = PACKAGE) -> list[Finding]:
    """A line for the manifest, for every code object, and for files that nobody lists."""
    manifest = read_manifest(folder)
    findings = [_verify_manifest(manifest)]
    findings += [_verify_object(folder, entry) for entry in manifest["objects"]]
    listed = {entry["file"] for entry in manifest["objects"]}
    for path in sorted(folder.glob("*.co")):
        if path.name not in listed:
            findings.append(Finding("problem", path.name, "the manifest does not list it", REBUILD))
    return findings


def _verify_manifest(manifest: dict[str, Any]) -> Finding:
    wanted = {"schema": SCHEMA, "target": TARGET, "abi_hash": _native.build_info()["abi_hash"]}
    problems = [f"its {key} is `{manifest.get(key)}`, this release needs `{value}`"
                for key, value in wanted.items() if manifest.get(key) != value]
    if not manifest["objects"]:
        problems.append("it lists no code object")
    if problems:
        return Finding("problem", "manifest", "; ".join(problems), REBUILD)
    count = len(manifest["objects"])
    return Finding("ok", "manifest", f"{TARGET}, ABI {wanted['abi_hash']}, {count} code object{'s' * (count != 1)}")


def _verify_object(folder: Path, entry: dict[str, Any]) -> Finding:
    try:
        image = _read(folder / entry["file"])
        inspected = json.loads(_native.inspect(image))
    except KernelPackageError as error:
        return Finding("problem", entry["name"], str(error), error.hint)
    except _native.MachineError as error:
        return Finding("problem", entry["name"], str(error), error.hint)
    problems = list(inspected["problems"])
    digest = hashlib.sha256(image).hexdigest()
    if digest != entry["sha256"]:
        problems.insert(0, f"its sha256 is {digest}, the manifest has {entry['sha256']}")
    problems += _disagreements(entry.get("symbols"), inspected["kernels"])
    if problems:
        return Finding("problem", entry["name"], "; ".join(problems), REBUILD)
    names = ", ".join(f"`{kernel['symbol']}`" for kernel in inspected["kernels"])
    found = f"{names}: {inspected['instructions']:,} instructions, all executable; no spill, no scratch_ or flat_"
    return Finding("ok", entry["name"], f"{found}; sha256 {digest[:12]}")


def _disagreements(symbols: Any, kernels: list[dict[str, Any]]) -> list[str]:
    """Where the manifest says something else of a kernel than the code object itself."""
    listed = {s.get("name"): s for s in symbols if isinstance(s, dict)} if isinstance(symbols, list) else {}
    held = {kernel["symbol"]: kernel for kernel in kernels}
    problems = [f"the manifest lists `{name}`, which it does not hold" for name in listed if name not in held]
    for name, kernel in held.items():
        if name not in listed:
            problems.append(f"the manifest does not list its kernel `{name}`")
            continue
        problems += [f"`{name}` has {key} {kernel[key]}, the manifest says {listed[name].get(key)}"
                     for key in REGISTERS if listed[name].get(key) != kernel[key]]
    return problems
