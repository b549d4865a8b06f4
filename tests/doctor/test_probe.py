"""The HIP probe against a small library of our own: every call succeeds, fails, or is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kimi_k3_specdec import _native
from kimi_k3_specdec.doctor import peer

from . import fake_hip

GATHER = """
import json
from kimi_k3_specdec import _native
from kimi_k3_specdec.doctor.peer import import_page
print(_native.probe_hip(import_page))
"""

# Call, the line that tells of it, and where its answer stands: a key of HIP, or of each device.
CALLS = [
    ("hipDriverGetVersion", "HIP driver", "driver"),
    ("hipRuntimeGetVersion", "HIP runtime", "runtime"),
    ("hipGetDeviceCount", "HIP devices", "devices"),
    ("hipDeviceGetPCIBusId", "HIP physical GPUs", "pci"),
    ("hipDeviceGetAttribute", "HIP compute units", "compute_units"),
    ("hipDeviceCanAccessPeer", "peer access", "peers"),
    ("hipSetDevice", "memory", "memory"),
    ("hipMemGetInfo", "memory", "memory"),
    ("hipExtMallocWithFlags", "uncached memory", "uncached"),
    ("hipFree", "uncached memory", "uncached"),
    ("hipIpcGetMemHandle", "IPC export", "exported"),
    ("hipIpcOpenMemHandle", "IPC import", "imported"),
    ("hipIpcCloseMemHandle", "IPC import", "imported"),
]
REQUIRED = {"hipGetDeviceCount", "hipDriverGetVersion"}


def probe(library: Path, **environment: str) -> dict[str, Any]:
    """What HIP's facts are in a process that finds its library in this folder."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), **environment}
    done = subprocess.run([sys.executable, "-c", GATHER], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def lines(hip: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Verdicts on these facts, by topic."""
    return {line["topic"]: line for line in json.loads(_native.doctor(json.dumps({"hip": hip})))["lines"]}


def answers(hip: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The answers that stand at a key of HIP or of each device."""
    if key in hip:
        return [hip[key]]
    found = [device[key] for device in hip["devices"]["value"]]
    return [answer for peers in found for answer in peers] if key == "peers" else found


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """The complete library."""
    return fake_hip.build(tmp_path_factory.mktemp("hip"))


def test_a_library_that_works_answers_everything(library, tmp_path):
    """Values arrive as they were written, and nothing that was taken is kept."""
    log = tmp_path / "log"
    hip = probe(library, FAKE_HIP_LOG=str(log))
    assert hip["library"] == {"loaded": "libamdhip64.so.7"}
    assert (hip["driver"], hip["runtime"]) == ({"value": 71426015}, {"value": 71426016})
    first, second = hip["devices"]["value"]
    assert first == {
        "pci": {"value": "0000:75:00.0"},
        "compute_units": {"value": 256},
        "peers": [{"value": False}, {"value": True}],
        "memory": {"value": {"free_bytes": 287 << 30, "total_bytes": 288 << 30}},
        "uncached": {"value": True},
        "exported": {"value": True},
        "imported": {"value": True},
    }
    assert second["pci"] == {"value": "0000:76:00.0"}
    calls = Counter(log.read_text().splitlines())
    for device in range(fake_hip.NUM_DEVICES):
        assert calls[f"hipExtMallocWithFlags {device}"] == calls[f"hipFree {device}"] == 1
        assert calls[f"hipIpcOpenMemHandle {device}"] == calls[f"hipIpcCloseMemHandle {device}"] == 1


@pytest.mark.parametrize(("call", "topic", "key"), CALLS)
def test_a_call_that_fails_is_a_fact(library, call, topic, key):
    """The status is kept by number, and the line names the call; the others' answers stay."""
    hip = probe(library, FAKE_HIP_FAIL=f"{call}=2")
    failed = {"failed": {"call": call, "status": 2, "name": "hipErrorOutOfMemory"}}
    assert all(answer == failed for answer in answers(hip, key))
    line = lines(hip)[topic]
    assert line["state"] == "problem"
    assert f"`{call}` failed with hipErrorOutOfMemory (2)" in line["found"]
    assert hip["driver"] == (failed if key == "driver" else {"value": 71426015})


@pytest.mark.parametrize(("call", "topic", "key"), [call for call in CALLS if call[0] not in REQUIRED])
def test_a_function_that_is_missing_is_a_fact(tmp_path, call, topic, key):
    """An older library is no crash: its line names the function."""
    hip = probe(fake_hip.build(tmp_path, without=[call]))
    assert all(answer == {"missing": call} for answer in answers(hip, key))
    line = lines(hip)[topic]
    assert line["state"] == "problem"
    assert f"no `{call}`" in line["found"]


def test_a_status_without_a_name_keeps_its_number(library):
    """Newer releases have statuses that this one does not know."""
    hip = probe(library, FAKE_HIP_FAIL="hipMemGetInfo=4711")
    assert answers(hip, "memory")[0] == {"failed": {"call": "hipMemGetInfo", "status": 4711, "name": None}}


@pytest.mark.parametrize("status", [201, 17])
def test_an_import_that_cannot_see_the_exporter_names_the_namespaces(library, status):
    """The two statuses that other containers get."""
    line = lines(probe(library, FAKE_HIP_FAIL=f"hipIpcOpenMemHandle={status}"))["IPC import"]
    assert line["state"] == "problem"
    assert "--ipc host --pid host --network host" in line["hint"]


def test_a_library_of_something_else_is_unusable(tmp_path):
    """A file of that name that is no HIP."""
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run(["cc", "-shared", "-o", tmp_path / "libamdhip64.so.7", tmp_path / "empty.c"], check=True)
    hip = probe(tmp_path)
    assert hip["library"] == {"unusable": "`libamdhip64.so.7` has no function `hipGetDeviceCount`"}
    assert lines(hip)["HIP library"]["state"] == "problem"


def test_an_importer_that_dies_is_a_failed_import(monkeypatch):
    """Its exit status is kept, for the line to name."""
    monkeypatch.setattr(sys, "executable", "false")
    failed = json.loads(peer.import_page(0, bytes(64)))["failed"]
    assert failed == {"call": "hipIpcOpenMemHandle", "status": 1, "name": "the importing process died"}


def test_a_handle_of_another_length_is_refused():
    """Handles are exactly as long as HIP's, and devices are numbers."""
    with pytest.raises(TypeError):
        _native.import_page("device", bytes(64))
    with pytest.raises(ValueError, match="length"):
        _native.import_page(0, bytes(63))
