"""Each fact that matters, given through `--facts`: its line says what was found and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from . import served
from .served import failed, gpu, with_device, with_environment, with_facts

HIP_MISSING = {"library": {"not_found": ["libamdhip64.so.7"]}}
SLICES = [{**gpu(0), "pci": f"0000:75:00.{i}", "compute_units": 32, "compute_partition": "CPX"} for i in range(8)]


def packages(**changes: Any) -> dict[str, Any]:
    """Facts with other packages."""
    return with_facts(packages={**served.facts()["packages"], **changes})


# Facts, topic, what was found, what its hint says.
PROBLEMS = [
    (with_facts(gpus=[gpu(i) for i in range(4)]), "GPUs", "4 x gfx950", "8 MI355X"),
    (with_facts(gpus=[{**gpu(i), "gfx": "gfx942"} for i in range(8)]), "GPUs", "8 x gfx942", "gfx950"),
    (with_facts(gpus=SLICES), "compute units", "0000:75:00.0 has 32", "SPX"),
    (with_facts(gpus=SLICES), "physical GPUs", "8 devices on 1 physical GPUs", "whole GPU each"),
    (with_facts(gpus=SLICES), "partition mode", "CPX/NPS1", "amd-smi set"),
    (with_facts(device_node="denied"), "/dev/kfd", "may not open", "render"),
    (with_facts(device_node="absent"), "/dev/kfd", "absent", "--device /dev/kfd"),
    (with_facts(hip=HIP_MISSING), "HIP library", "`libamdhip64.so.7`", "install ROCm"),
    (with_facts(hip={"library": {"unusable": "no function"}}), "HIP library", "no function", "install"),
    (with_facts(hip={"library": {"loaded": "x"}, "driver": failed("hipDriverGetVersion", 35)}), "HIP driver",
     "`hipDriverGetVersion` failed with status 35", "driver"),
    (with_facts(hip={"library": {"loaded": "x"}, "runtime": {"missing": "hipRuntimeGetVersion"}}), "HIP runtime",
     "has no `hipRuntimeGetVersion`", "ROCm"),
    (with_facts(hip={"library": {"loaded": "x"}, "devices": failed("hipGetDeviceCount", 100)}), "HIP devices",
     "`hipGetDeviceCount` failed with status 100", "driver"),
    (with_facts(hip={"library": {"loaded": "x"}, "devices": {"value": [served.device(0)]}}), "HIP devices",
     "1, of 8", "visible devices"),
    (with_device(pci={"value": "0000:00:00.1"}), "HIP physical GPUs", "8 devices on 7 physical", "of its own"),
    (with_device(compute_units={"value": 128}), "HIP compute units", "device 3 has 128", "resident"),
    (with_device(peers=[{"value": i != 6} for i in range(8)]), "peer access", "3 cannot reach 6", "XGMI"),
    (with_device(peers=[failed("hipDeviceCanAccessPeer", 101)] * 8), "peer access", "3 to 0: `hipDeviceCanAcc", "XGMI"),
    (with_device(uncached=failed("hipExtMallocWithFlags", 2)), "uncached memory", "device 3: `hipExtMalloc", "ROCm"),
    (with_device(exported={"missing": "hipIpcGetMemHandle"}), "IPC export", "no `hipIpcGetMemHandle`", "ROCm"),
    (with_device(imported=failed("hipIpcOpenMemHandle", 201)), "IPC import", "status 201", "--ipc host --pid host"),
    (with_device(imported=failed("hipIpcOpenMemHandle", 17)), "IPC import", "status 17", "--network host"),
    (with_device(imported=failed("hipIpcOpenMemHandle", 1)), "IPC import", "status 1", "install"),
    (with_device(memory={"value": {"free_bytes": 200 << 30, "total_bytes": 288 << 30}}), "memory",
     "device 3 has 200.0 of 288.0 GiB free", "--gpu-memory-utilization"),
    (with_facts(rocm="7.0.1"), "ROCm", "not really uncached", "newer than 7.2.3"),
    (with_facts(rocm="7.0.1"), "ROCm", "break graph capture", "newer than 7.2.3"),
    (with_facts(rocm="7.1.1-38"), "ROCm", "break graph capture", "newer than 7.2.3"),
    (with_facts(rocm="7.2.3"), "ROCm", "one process in five", "newer than 7.2.3"),
    (packages(vllm="0.34.0"), "vLLM", "0.34.0", "0.33"),
    (packages(vllm="0.3.3"), "vLLM", "0.3.3", "0.33"),
    (packages(aiter_importable=False), "AITER", "cannot be imported", "install AITER"),
    (packages(torch="2.9.1"), "torch", "2.9.1", "2.10"),
    (with_facts(code_objects={"unusable": {"found": "altered", "hint": "again"}}), "code objects", "altered", "again"),
    (with_facts(code_objects={"verified": {}}), "code objects", "none", "build.py"),
    (with_environment(HIP_VISIBLE_DEVICES="0,1"), "visible devices", "2 of the machine's: 0, 1", "all 8"),
    (with_environment(ROCR_VISIBLE_DEVICES="4,5,6,7", HIP_VISIBLE_DEVICES="4"), "visible devices",
     "4 is out of range", "HIP counts among what ROCR_VISIBLE_DEVICES leaves"),
    (with_environment(ROCR_VISIBLE_DEVICES="7,6", HIP_VISIBLE_DEVICES="1"), "visible devices", "machine's: 6", "HIP"),
    (with_environment(ROCR_VISIBLE_DEVICES=""), "visible devices", "none", "show all 8"),
    (with_environment(HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1"), "visible devices", "CUDA", "unset CUDA"),
    (with_environment(GPU_DEVICE_ORDINAL="0"), "visible devices", "GPU_DEVICE_ORDINAL", "unset"),
    (with_environment(HSA_CU_MASK="0:0-127"), "HSA_CU_MASK", "`0:0-127`", "still reports 256"),
    (with_environment(ROC_GLOBAL_CU_MASK="0xf"), "ROC_GLOBAL_CU_MASK", "`0xf`", "resident"),
    (with_environment(VLLM_PLUGINS="other, kimi_k3_specdec"), "VLLM_PLUGINS", "other", "without spaces"),
    (with_environment(VLLM_PLUGINS=""), "VLLM_PLUGINS", "``", "add `kimi_k3_specdec`"),
    (with_environment(VLLM_ROCM_USE_AITER="0"), "VLLM_ROCM_USE_AITER", "`0`", "VLLM_ROCM_USE_AITER=1"),
    (with_facts(environment={}), "VLLM_ROCM_USE_AITER", "unset", "refuses to start"),
    (with_environment(VLLM_ROCM_USE_AITER_MOE="0"), "VLLM_ROCM_USE_AITER_MOE", "`0`", "set it to 1"),
    (with_environment(VLLM_ROCM_USE_AITER_MOE_SITUV2="a8w4"), "VLLM_ROCM_USE_AITER_MOE_SITUV2", "a8w4", "interleaves"),
    (with_environment(VLLM_ROCM_USE_AITER_MOE_SITUV2="a16w4"), "VLLM_ROCM_USE_AITER_MOE_SITUV2", "a16w4", "a4w4"),
    (with_environment(VLLM_USE_V2_MODEL_RUNNER="0"), "VLLM_USE_V2_MODEL_RUNNER", "`0`", "V2 model runner"),
]

# Facts that are fine; the hint is what to mind, or None.
FINE = [
    (with_facts(rocm="10.0"), "ROCm", "10.0", None),
    (with_facts(rocm="7.2.4"), "ROCm", "7.2.4", None),
    (packages(vllm="0.33.2rc1"), "vLLM", "0.33.2rc1", None),
    (packages(torch="2.10.0+git1234"), "torch", "2.10.0+git1234", None),
    (with_facts(gpus=[*(gpu(i) for i in range(8)), {**gpu(9), "gfx": "gfx1036"}]), "GPUs", "8 x gfx950", "no others"),
    (with_facts(namespaces={"ipc": 1, "pid": 2, "net": 3}), "namespaces", "ipc and pid not the host's", "201 and 17"),
    (with_environment(HIP_VISIBLE_DEVICES="7,6,5,4,3,2,1,0"), "visible devices", "machine's: 7, 6, 5", None),
    (with_environment(VLLM_PLUGINS="other,kimi_k3_specdec"), "VLLM_PLUGINS", "other", None),
    (with_environment(VLLM_ROCM_USE_AITER="True"), "VLLM_ROCM_USE_AITER", "True", None),
    (with_environment(AITER_SITUV2_A8W4="1"), "AITER_SITUV2_A8W4", "`1`", "vLLM 0.33 ignores it"),
    (with_environment(VLLM_ROCM_USE_AITER_FP4BMM="0"), "VLLM_ROCM_USE_AITER_FP4BMM", "`0`", "DCP1"),
    (with_environment(VLLM_USE_V2_MODEL_RUNNER="1"), "VLLM_USE_V2_MODEL_RUNNER", "`1`", None),
]

# Absent or unknown is neither right nor wrong.
NOT_HERE = [
    ({"gpus": []}, "GPUs"),
    ({}, "GPUs"),
    ({"device_node": "absent"}, "/dev/kfd"),
    ({"hip": HIP_MISSING}, "HIP library"),
    ({"gpus": [], "hip": {"library": {"loaded": "x"}, "devices": failed("hipGetDeviceCount", 100)}}, "HIP devices"),
    ({}, "peer access"),
    ({}, "ROCm"),
    (packages(vllm=None), "vLLM"),
    ({"packages": {"aiter_importable": False}}, "AITER"),
    ({"environment": {}}, "VLLM_ROCM_USE_AITER"),
    ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "visible devices"),
    ({}, "environment"),
    ({}, "code objects"),
]


def test_a_machine_as_it_should_be_has_no_problem(judge):
    """Every line is ok, and none has a hint."""
    status, lines = judge(served.facts())
    assert status == 0
    assert {topic: line for topic, line in lines.items() if line["state"] != "ok" or line["hint"]} == {}


@pytest.mark.parametrize(("facts", "topic", "found", "hint"), PROBLEMS)
def test_problem(judge, facts, topic, found, hint):
    """One spoiled fact: exit status 1, and its line says what and what to do."""
    status, lines = judge(facts)
    line = lines[topic]
    assert (status, line["state"]) == (1, "problem")
    assert found in line["found"]
    assert hint in line["hint"]


@pytest.mark.parametrize(("facts", "topic", "found", "hint"), FINE)
def test_fine(judge, facts, topic, found, hint):
    """Fine, with or without something to mind; the rest of the machine is as it should be."""
    status, lines = judge(facts)
    line = lines[topic]
    assert (status, line["state"]) == (0, "ok")
    assert found in line["found"]
    assert line["hint"] is None if hint is None else hint in line["hint"]


@pytest.mark.parametrize(("facts", "topic"), NOT_HERE)
def test_not_here(judge, facts, topic):
    """What is absent or not known is said, and is no problem."""
    status, lines = judge(facts)
    assert (status, lines[topic]["state"]) == (0, "not here")
    assert lines[topic]["found"]


def test_every_line_is_explained_in_the_documentation(judge):
    """`docs/doctor.md` has a row for each topic, and no other."""
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text()
    table = page.split("## What each line means")[1].split("\n## ")[0]
    documented = {name for row in re.findall(r"^\| (`.+?) \|", table, re.M) for name in re.findall(r"`([^`]+)`", row)}
    _, lines = judge(served.facts())
    assert documented == set(lines)


@pytest.mark.parametrize("rocm", ["7.0.1", "7.2.3"])
def test_known_bad_releases_are_documented(judge, rocm):
    """The faults stand in `docs/doctor.md` in the words of the line."""
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text()
    _, lines = judge(with_facts(rocm=rocm))
    for fault in lines["ROCm"]["found"].removeprefix(f"{rocm}: ").split("; "):
        assert fault in page
