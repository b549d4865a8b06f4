"""Facts from a machine: from trees that look like one, and from this one whatever it is."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

from kimi_k3_specdec import _native, kernels
from kimi_k3_specdec.doctor import Places, gather

gathering = importlib.import_module("kimi_k3_specdec.doctor.gather")

CPU_NODE = "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\n"


def gpu_node(location: int, domain: int = 0, units: int = 256) -> str:
    """A GPU's properties, some that do not matter among them."""
    return (f"cpu_cores_count 0\nsimd_count {4 * units}\nmem_banks_count 1\nsimd_per_cu 4\nlds_size_in_kb 160\n"
            f"gfx_target_version 90500\nlocation_id {location}\ndomain {domain}\nunique_id 12345678901234567890\n")


def write(path: Path, text: str) -> None:
    """A file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def places(tmp_path, monkeypatch) -> Places:
    """A machine with nothing on it."""
    monkeypatch.delenv("ROCM_PATH", raising=False)
    return Places(*(tmp_path / name for name in ("sys", "dev", "proc", "rocm")))


def facts(places: Places) -> tuple[dict, list[str]]:
    """Facts of these places, and what could not be read; the facts are ones that can be judged."""
    warnings: list[str] = []
    found = gather(places, warnings.append)
    assert json.loads(_native.doctor(json.dumps(found)))["warnings"] == []
    return found, warnings


def test_a_machine_with_nothing_on_it(places):
    """Nothing is no error: no GPU, and the rest not known."""
    found, warnings = facts(places)
    assert (found["gpus"], found["device_node"], found["amdgpu"], found["rocm"]) == ([], "absent", None, None)
    assert (found["namespaces"], warnings) == (None, [])


def test_gpus_are_read_in_the_drivers_order(places):
    """Node 10 after node 2, CPUs left out, partition modes where the driver names them."""
    nodes = places.sys / "class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", CPU_NODE)
    write(nodes / "10/properties", gpu_node(0x7600))
    write(nodes / "2/properties", gpu_node(0x3000_7500, domain=1, units=32))
    write(places.sys / "bus/pci/devices/0001:75:00.0/current_compute_partition", "CPX\n")
    write(places.sys / "bus/pci/devices/0001:75:00.0/current_memory_partition", "NPS4\n")
    write(places.sys / "module/amdgpu/version", "6.16.6\n")
    found, warnings = facts(places)
    assert found["gpus"] == [
        {"gfx": "gfx950", "compute_units": 32, "pci": "0001:75:00.0", "compute_partition": "CPX",
         "memory_partition": "NPS4"},
        {"gfx": "gfx950", "compute_units": 256, "pci": "0000:76:00.0", "compute_partition": None,
         "memory_partition": None},
    ]
    assert (found["amdgpu"], warnings) == ("6.16.6", [])


@pytest.mark.parametrize("text", ["", "simd_count many\n", gpu_node(0x7500).replace("location_id", "place")])
def test_a_node_that_cannot_be_read_makes_gpus_unknown(places, text):
    """Unknown, with a warning that names the file, is not the same as none."""
    write(places.sys / "class/kfd/kfd/topology/nodes/1/properties", text)
    found, (warning,) = facts(places)
    assert found["gpus"] is None
    assert "nodes/1/properties`: the property `" in warning


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_node_of_another_container_is_left_out(places):
    """The driver shows every node and refuses to open those of other GPUs."""
    node = places.sys / "class/kfd/kfd/topology/nodes/1/properties"
    write(node, gpu_node(0x7500))
    node.chmod(0)
    assert facts(places)[0]["gpus"] == []


def test_rocm_is_found_where_it_can_be(places, tmp_path, monkeypatch):
    """ROCM_PATH before the usual tree, before the wheels."""
    monkeypatch.setattr(metadata, "version", lambda name: {"rocm-sdk-core": "7.14.0"}.get(name, "0.33.0"))
    assert facts(places)[0]["rocm"] == "7.14.0"
    write(places.rocm / ".info/version", "7.2.0-43\n")
    assert facts(places)[0]["rocm"] == "7.2.0-43"
    write(tmp_path / "other/.info/version", "10.0.0\n")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "other"))
    assert facts(places)[0]["rocm"] == "10.0.0"


def test_a_version_of_another_form_is_unknown_and_said(places):
    """The other lines must not be lost to it."""
    write(places.rocm / ".info/version", "banana\n")
    found, (warning,) = facts(places)
    assert found["rocm"] is None
    assert "`banana`" in warning


def test_packages_are_read_by_their_metadata(places, monkeypatch):
    """Each under the name it is installed by; an absent one is None."""
    installed = {"vllm": "0.33.0+rocm720", "torch": "2.14.0", "amd-aiter": "0.1.9.post1"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    packages = facts(places)[0]["packages"]
    assert {name: packages[name] for name in ("vllm", "aiter", "torch")} == {
        "vllm": "0.33.0+rocm720", "aiter": "0.1.9.post1", "torch": "2.14.0"}
    installed.clear()
    packages = facts(places)[0]["packages"]
    assert (packages["vllm"], packages["aiter"], packages["torch"]) == (None, None, None)


def test_only_variables_that_matter_are_taken(places, monkeypatch):
    """Facts are shown to others: no other variable is in them."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    environment = facts(places)[0]["environment"]
    assert set(environment) == set(_native.doctor_variables())
    assert environment["VLLM_PLUGINS"] == "other"
    assert "secret" not in json.dumps(environment)


def test_the_device_node_is_tried(places):
    """A node that can be opened; the kernel decides."""
    write(places.dev / "kfd", "")
    assert facts(places)[0]["device_node"] == "open"
    if os.geteuid() != 0:
        (places.dev / "kfd").chmod(0)
        assert facts(places)[0]["device_node"] == "denied"


def test_code_objects_are_verified_or_named(places, tmp_path, monkeypatch):
    """Each file by its digest; one that is altered is named."""
    verified = facts(places)[0]["code_objects"]["verified"]
    assert verified == {entry["name"]: entry["sha256"] for entry in kernels.manifest()["objects"]}
    manifest = kernels.manifest()
    write(tmp_path / "package/manifest.json", json.dumps(manifest))
    for entry in manifest["objects"]:
        write(tmp_path / "package" / entry["file"], "altered")
    for name in ("manifest", "code_object"):
        monkeypatch.setattr(gathering, name, partial(getattr(kernels, name), package=tmp_path / "package"))
    unusable = facts(places)[0]["code_objects"]["unusable"]
    assert "is altered" in unusable["found"]
    assert "build.py" in unusable["hint"]


def test_this_machine_can_be_asked(run_doctor):
    """Whatever it has: lines for every topic, no crash; without a GPU, and nothing set, no problem."""
    result = run_doctor("--json")
    report = json.loads(result.stdout)
    states = {line["state"] for line in report["lines"]}
    assert states <= {"ok", "problem", "not here"}
    assert result.exit_code == (1 if "problem" in states else 0)
    if report["facts"]["gpus"] == []:
        assert report["verdict"] in ("not here", "problem")


def test_neither_torch_nor_vllm_is_imported():
    """The command answers in a moment, and on a machine whose torch is broken."""
    code = "import sys; from kimi_k3_specdec.cli import doctor; doctor.gather(doctor.Places(), print); " \
           "print([name for name in ('torch', 'vllm', 'aiter') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
