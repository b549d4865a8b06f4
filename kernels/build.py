#!/usr/bin/env python3
"""Builds the code objects that `builds.toml` lists, checks each one, and writes them with their manifest.

Standard library only; no GPU and no vendor toolkit. The same sources, compiler and table give the same bytes in any
checkout. A build that fails leaves the objects and the manifest of the last good one as they were.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pyproject.toml asks for it there
    import tomli as tomllib

# A `__pycache__` in the sources would look like a changed source to cargo, which watches this directory.
sys.dont_write_bytecode = True
import code_object  # noqa: E402

SCHEMA = 1
TARGETS = ("gfx950",)
KERNELS = Path(__file__).resolve().parent
PACKAGE = KERNELS.parent / "python" / "kimi_k3_specdec" / "kernels"
ABI_HEADER = Path("include/specdec/abi_generated.hpp")
ABI_HASH = re.compile(r"^#define SPECDEC_ABI_HASH (0x[0-9a-fA-F]+)", re.MULTILINE)
INSTALL = "`apt-get install clang-22 lld-22 llvm-22`, or set SPECDEC_CLANG to a clang that has lld and llvm beside it"


class BuildError(Exception):
    """Why there is no build; `status` is the exit status (1 refused, 2 cannot run here or wrong usage)."""

    def __init__(self, message: str, hint: str, status: int = 1) -> None:
        """`message` says what was refused and why, `hint` what to do."""
        super().__init__(message)
        self.hint = hint
        self.status = status


@dataclass(frozen=True)
class Row:
    """One row of the build table."""

    name: str
    source: str
    geometry: str | None = None
    ranks: int | None = None
    defines: dict[str, str | int] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The code object's file name."""
        return f"{self.name}.co"

    def flags(self) -> list[str]:
        """This row's own preprocessor flags."""
        defines = dict(self.defines)
        if self.geometry is not None:
            defines["SPECDEC_GEOMETRY"] = "".join(part.capitalize() for part in self.geometry.split("-"))
        if self.ranks is not None:
            defines["SPECDEC_RANKS"] = self.ranks
        return [f"-D{name}={value}" for name, value in sorted(defines.items())]


@dataclass(frozen=True)
class Toolchain:
    """A clang for AMDGPU and the tools of the same LLVM."""

    clang: str
    objdump: str
    symbolizer: str
    version: str

    @classmethod
    def find(cls) -> Toolchain:
        """The first of $SPECDEC_CLANG, clang-22 and ROCm's clang that exists, with every tool that a build needs."""
        rocm = os.path.join(os.environ.get("ROCM_PATH", "/opt/rocm"), "llvm", "bin", "clang")
        chosen = os.environ.get("SPECDEC_CLANG")
        wanted = [chosen] if chosen else ["clang-22", rocm]
        clang = next(filter(None, map(shutil.which, wanted)), None)
        if clang is None:
            raise BuildError(f"no compiler for the gfx950 kernels: looked for {quoted(wanted)}", INSTALL, status=2)
        tools = {}
        for tool in ("lld", "llvm-objdump", "llvm-symbolizer"):
            tools[tool] = output([clang, f"-print-prog-name={tool}"]).strip()
        if missing := [tool for tool, path in tools.items() if shutil.which(path) is None]:
            raise BuildError(f"`{clang}` has no {quoted(missing)} beside it, which a build needs", INSTALL, status=2)
        version = output([clang, "--version"]).splitlines()[0]
        return cls(clang, tools["llvm-objdump"], tools["llvm-symbolizer"], version)


@dataclass(frozen=True)
class Build:
    """One invocation: where the sources are, for what target, and the hash that stands for all of them."""

    kernels: Path
    target: str
    source_hash: str
    toolchain: Toolchain | None

    def flags(self) -> list[str]:
        """The flags that every row shares."""
        return [
            *("-x", "hip", f"--offload-arch={self.target}", "--offload-device-only", "--no-gpu-bundle-output"),
            *("-nogpuinc", "-nogpulib", "-O3", "-std=c++20", "-ffp-contract=off"),
            *("-gline-tables-only", "-mcode-object-version=6", "-Wall", "-Wextra", "-Werror"),
            # Nothing of the checkout's path in the object: relative names, and no id hashed from the path.
            *("-ffile-compilation-dir=kernels", "-fuse-cuid=none", "-Iinclude", "-I."),
            # Hoisting constants out of the layer loop would hold them in registers through every stage: spills.
            *("-mllvm", "-disable-machine-licm"),
        ]

    def inputs_hash(self, row: Row) -> str:
        """Stands for all that decides the row's bytes, save the compiler's version."""
        text = json.dumps([SCHEMA, self.source_hash, self.flags(), row.source, row.flags()])
        return hashlib.sha256(text.encode()).hexdigest()

    def is_current(self, row: Row, entry: dict[str, Any] | None, out: Path) -> bool:
        """Whether `entry` of the manifest, and its file in `out`, are what building `row` would give."""
        if entry is None or entry["inputs_hash"] != self.inputs_hash(row):
            return False
        if self.toolchain is not None and entry["compiler"] != self.toolchain.version:
            return False
        path = out / row.file
        return path.is_file() and sha256(path.read_bytes()) == entry["sha256"]

    def compile(self, row: Row, scratch: Path) -> dict[str, Any]:
        """Compiles and inspects one row; returns its manifest entry, the object being in `scratch`."""
        assert self.toolchain is not None
        started = time.monotonic()
        path = scratch / row.file
        command = [self.toolchain.clang, *self.flags(), *row.flags(), "-c", row.source, "-o", str(path)]
        done = subprocess.run(command, cwd=self.kernels, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"`{row.name}` does not compile\n{done.stderr.rstrip()}", f"mend `{row.source}`")
        try:
            kernels = code_object.inspect(
                path,
                target=self.target,
                objdump=self.toolchain.objdump,
                symbolizer=self.toolchain.symbolizer,
            )
        except code_object.CodeObjectError as error:
            raise BuildError(f"`{row.name}` is no usable code object: {error}", "check the compiler") from error
        if problems := [problem for kernel in kernels for problem in kernel.problems()]:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise BuildError(
                f"`{row.name}` is not fit to ship:\n{lines}",
                "lower the register pressure, or cast pointers from memory to `address_space(1)`",
            )
        seconds = time.monotonic() - started
        progress(f"{row.name}: {', '.join(map(summary, kernels))}, {seconds:.1f} s")
        return {
            "name": row.name,
            "file": row.file,
            "sha256": sha256(path.read_bytes()),
            "geometry": row.geometry,
            "ranks": row.ranks,
            "symbols": [kernel.manifest_entry() for kernel in kernels],
            "inputs_hash": self.inputs_hash(row),
            "compiler": self.toolchain.version,
        }


def summary(kernel: code_object.Kernel) -> str:
    """One kernel in a few words, for the progress line."""
    return f"`{kernel.name}` {kernel.vgprs} VGPRs, {kernel.lds_bytes} B LDS, {kernel.instructions} instructions"


def quoted(names: list[str]) -> str:
    """The names in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def output(command: list[str]) -> str:
    """What `command` prints."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"`{' '.join(command)}` does not run ({error})", INSTALL, status=2) from error


def progress(line: str) -> None:
    """Tells the person who waits what happens."""
    print(f"kernels: {line}", file=sys.stderr, flush=True)


def sha256(data: bytes) -> str:
    """The digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def hash_sources(kernels: Path) -> str:
    """One digest over the name and content of every file under `kernels`."""
    digest = hashlib.sha256()
    for path in sorted(kernels.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(kernels).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def read_table(kernels: Path, only: list[str]) -> tuple[list[Row], list[Row]]:
    """All rows of the table, and those that `only` names (all of them when it is empty)."""
    path = kernels / "builds.toml"
    try:
        rows = [Row(**row) for row in tomllib.loads(path.read_text()).get("build", [])]
    except (OSError, TypeError, tomllib.TOMLDecodeError) as error:
        raise BuildError(f"`{path}` is no build table: {error}", "see the example at its head", status=2) from error
    names = [row.name for row in rows]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise BuildError(f"`{path}` lists {quoted(repeated)} more than once", "give each row its own name", status=2)
    if unknown := [name for name in only if name not in names]:
        raise BuildError(f"no build is named {quoted(unknown)}", f"the table has {quoted(names)}", status=2)
    return rows, [row for row in rows if not only or row.name in only]


def read_manifest(out: Path) -> dict[str, Any]:
    """The last build's manifest; an empty one where there is none of this schema."""
    with contextlib.suppress(OSError, ValueError):
        manifest = json.loads((out / "manifest.json").read_text())
        if manifest["schema"] == SCHEMA:
            return manifest
    return {"objects": []}


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keeps a second build (make's and cargo's may meet) waiting until this one has written its manifest."""
    out.mkdir(parents=True, exist_ok=True)
    directory = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def replace(path: Path, content: bytes) -> None:
    """Writes the file at once or not at all, and not when it is the same."""
    if path.is_file() and path.read_bytes() == content:
        return
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Builds what is not current, publishes it, and returns the manifest with what was `built` and `cached`."""
    try:
        toolchain, missing = Toolchain.find(), None
    except BuildError as error:
        toolchain, missing = None, error
    build = Build(options.kernels, options.target, hash_sources(options.kernels), toolchain)
    rows, wanted = read_table(options.kernels, options.only)
    with locked(options.out), tempfile.TemporaryDirectory(prefix="specdec-kernels-") as scratch:
        last = {entry["name"]: entry for entry in read_manifest(options.out)["objects"]}
        entries = {row.name: last[row.name] for row in rows if build.is_current(row, last.get(row.name), options.out)}
        stale = [row for row in wanted if options.force or row.name not in entries]
        if stale and missing is not None:
            raise missing
        if stale:
            progress(f"compiling {len(stale)} of {len(wanted)} code objects for {build.target}: {toolchain.version}")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for entry in pool.map(lambda row: build.compile(row, Path(scratch)), stale):
                entries[entry["name"]] = entry
        return publish(build, rows, entries, {row.name for row in stale}, Path(scratch), options.out)


def publish(
    build: Build, rows: list[Row], entries: dict[str, Any], built: set[str], scratch: Path, out: Path
) -> dict[str, Any]:
    """Moves the new objects in place, then the manifest, then removes objects that the manifest does not name."""
    header = build.kernels / ABI_HEADER
    abi_hash = ABI_HASH.search(header.read_text()) if header.is_file() else None
    objects = [entries[row.name] for row in rows if row.name in entries]
    manifest = {
        "schema": SCHEMA,
        "target": build.target,
        "source_hash": build.source_hash,
        "abi_hash": abi_hash[1].lower() if abi_hash else None,
        "objects": objects,
    }
    for entry in objects:
        if entry["name"] in built:
            replace(out / entry["file"], (scratch / entry["file"]).read_bytes())
    replace(out / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())
    for path in out.glob("*.co"):
        if path.name not in {entry["file"] for entry in objects}:
            path.unlink()
    cached = [entry["name"] for entry in objects if entry["name"] not in built]
    return manifest | {"built": sorted(built), "cached": cached}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="kernels/build.py", description=__doc__.split("\n")[0])
    parser.add_argument("--target", choices=TARGETS, default="gfx950", help="what to compile for (%(default)s)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="build this row; may be repeated")
    parser.add_argument("--kernels", type=Path, default=KERNELS, metavar="DIR", help="the sources, builds.toml inside")
    parser.add_argument("--out", type=Path, default=PACKAGE, metavar="DIR", help="where objects and manifest go")
    parser.add_argument("--force", action="store_true", help="compile what is current too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="compilers at once (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the manifest, with what was built, on stdout")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Runs one build; returns the exit status."""
    options = parse(arguments)
    started = time.monotonic()
    try:
        result = run(options)
    except BuildError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.status
    seconds = time.monotonic() - started
    if options.json:
        print(json.dumps(result | {"seconds": round(seconds, 3)}, indent=1))
    progress(f"{len(result['built'])} built, {len(result['cached'])} current, {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
