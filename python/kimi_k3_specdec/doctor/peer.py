"""A second process that imports a page of the first one's uncached memory, as ranks do; it answers in one line."""

from __future__ import annotations

import json
import subprocess
import sys

from .. import _native

TIMEOUT_SECONDS = 30


def import_page(device: int, handle: bytes) -> str:
    """What an import of `handle` on `device` came to in a process of its own, as JSON; a process that died failed."""
    command = [sys.executable, "-m", __name__, str(device), handle.hex()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return _failed(-1, f"no answer in {TIMEOUT_SECONDS} s")
    # The library may write lines of its own before ours.
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        return _failed(done.returncode, "the importing process died")
    return lines[-1]


def _failed(status: int, name: str) -> str:
    return json.dumps({"failed": {"call": "hipIpcOpenMemHandle", "status": status, "name": name}})


if __name__ == "__main__":
    print(json.dumps(json.loads(_native.import_page(int(sys.argv[1]), bytes.fromhex(sys.argv[2])))))
