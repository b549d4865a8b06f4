"""Runs a case: memory from files, launches, memory into files."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any

from ..errors import UserError
from .machine import Machine, Module, Refused

MAX_CODE_OBJECT_BYTES = 256 << 20
"""Hundreds of times ours; a wrong file should not fill the memory."""
CHUNK_BYTES = 16 << 20
"""Files go to and from the machine in pieces: they may be as large as its memory."""


def run_case(case: dict[str, Any], folder: Path, **options: Any) -> dict[str, Any]:
    """Runs a case that `_native.parse_case` has checked; returns the figures.

    Files are relative to `folder`; `options` are the `Machine`'s. Raises `UserError` or `Refused` with the JSON path
    before anything runs, `MachineError` for what a kernel did; the read-backs are written after that, all or none.
    """
    ranks = 1 + max((entry["rank"] for entry in (*case["allocs"], *case["launches"])), default=0)
    machine = Machine(ranks, **options)
    for index, alloc in enumerate(case["allocs"]):
        path = f"$.allocs[{index}]"
        with _at(path):
            machine.allocate(alloc["bytes"], rank=alloc["rank"], address=alloc["addr"], name=path.removeprefix("$."),
                             initialised=alloc["sparse"])
    # What is only looked at comes before what takes long.
    for index, transfer in enumerate(case["readback"]):
        _check_target(folder / transfer["file"], f"$.readback[{index}].file")
    modules: dict[str, Module] = {}
    for index, launch in enumerate(case["launches"]):
        _queue(machine, modules, launch, folder, f"$.launches[{index}]")
    for index, transfer in enumerate(case["writes"]):
        _write(machine, transfer, folder, f"$.writes[{index}]")
    with _interruptible():
        machine.run()
    _read_back(machine, case["readback"], folder)
    figures = machine.statistics()
    del figures["loads_in_flight"]
    return {**figures, "virtual_seconds": machine.seconds}


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C end the process: Python's own handler would wait for the end of the run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _at(path: str) -> Iterator[None]:
    """Adds the JSON path to what the machine or the system refuses."""
    try:
        yield
    except Refused as error:
        raise UserError(f"`{path}`: {error}", error.hint) from error
    except OSError as error:
        reason = f"`{error.filename}` cannot be used: {error.strerror}"
        raise UserError(f"`{path}`: {reason}", "names are relative to the case's folder") from error


def _size(path: Path) -> int:
    """Bytes of a regular file."""
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise OSError(0, "not a regular file", str(path))
    return status.st_size


def _queue(machine: Machine, modules: dict[str, Module], launch: dict[str, Any], folder: Path, path: str) -> None:
    name = launch["code_object"]
    if name not in modules:
        with _at(f"{path}.code_object"):
            file = folder / name
            if _size(file) > MAX_CODE_OBJECT_BYTES:
                raise OSError(0, f"larger than {MAX_CODE_OBJECT_BYTES >> 20} MiB", str(file))
            modules[name] = machine.load(file.read_bytes())
    with _at(path):
        machine.launch(modules[name], launch["symbol"], launch["grid"], launch["block"],
                       bytes.fromhex(launch["kernarg"]), rank=launch["rank"], dynamic_lds=launch["lds_dynamic"])


def _write(machine: Machine, transfer: dict[str, Any], folder: Path, path: str) -> None:
    file, address = folder / transfer["file"], transfer["addr"]
    with _at(f"{path}.file"):
        size = _size(file)
        if size != transfer["bytes"]:
            raise UserError(f"`{path}.bytes`: is {transfer['bytes']}, but `{file}` has {size} bytes",
                            "give the file's size, or the right file")
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                machine.write(address, chunk)
                address += len(chunk)


def _check_target(file: Path, path: str) -> None:
    """Refuses a place where no file can be, before a long run."""
    with _at(path):
        if file.exists():
            _size(file)
        for parent in file.parents:
            if parent.exists():
                if not parent.is_dir() or not os.access(parent, os.W_OK):
                    raise OSError(0, "no folder to write into", str(parent))
                break


def _read_back(machine: Machine, transfers: list[dict[str, Any]], folder: Path) -> None:
    """Writes every file in a folder beside its place first, so that a full disk or a bad name leaves none of them."""
    with contextlib.ExitStack() as stack:
        ready: list[tuple[Path, Path]] = []
        for index, transfer in enumerate(transfers):
            with _at(f"$.readback[{index}].file"):
                file = folder / transfer["file"]
                file.parent.mkdir(parents=True, exist_ok=True)
                beside = stack.enter_context(tempfile.TemporaryDirectory(prefix=".readback-", dir=file.parent))
                _save(machine, transfer, Path(beside, file.name))
                ready.append((Path(beside, file.name), file))
        for index, (temporary, file) in enumerate(ready):
            with _at(f"$.readback[{index}].file"):
                os.replace(temporary, file)


def _save(machine: Machine, transfer: dict[str, Any], file: Path) -> None:
    """The transfer's memory as a new file."""
    end = transfer["addr"] + transfer["bytes"]
    with file.open("xb") as stream:
        for address in range(transfer["addr"], end, CHUNK_BYTES):
            stream.write(machine.read(address, min(CHUNK_BYTES, end - address)))
