"""Facts of a machine on which everything is as it should be, for tests to spoil."""

from __future__ import annotations

from typing import Any

RANKS = 8
COMPUTE_UNITS = 256


def gpu(index: int) -> dict[str, Any]:
    """One whole MI355X of the kernel driver's list."""
    return {"gfx": "gfx950", "compute_units": COMPUTE_UNITS, "pci": f"0000:{index:02x}:00.0",
            "compute_partition": "SPX", "memory_partition": "NPS1"}


def device(index: int) -> dict[str, Any]:
    """The same as HIP describes it."""
    return {
        "pci": {"value": f"0000:{index:02x}:00.0"},
        "compute_units": {"value": COMPUTE_UNITS},
        "peers": [{"value": peer != index} for peer in range(RANKS)],
        "memory": {"value": {"free_bytes": 287 << 30, "total_bytes": 288 << 30}},
        "uncached": {"value": True},
        "exported": {"value": True},
        "imported": {"value": True},
    }


def facts() -> dict[str, Any]:
    """Of the whole machine; a fresh value each time."""
    return {
        "gpus": [gpu(index) for index in range(RANKS)],
        "device_node": "open",
        "hip": {
            "library": {"loaded": "libamdhip64.so.7"},
            "driver": {"value": 71426015},
            "runtime": {"value": 71426015},
            "devices": {"value": [device(index) for index in range(RANKS)]},
        },
        "amdgpu": "6.16.6",
        "rocm": "7.14.0",
        "packages": {"vllm": "0.33.0", "aiter": "0.1.9", "aiter_importable": True, "torch": "2.14.0"},
        "environment": {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_FP4BMM": "1"},
        "namespaces": {"ipc": 0xEFFFFFFF, "pid": 0xEFFFFFFC, "net": 0xEFFFFFF9},
        "code_objects": {"verified": {"layers_k3_tp8": "00"}},
    }


def with_facts(**changes: Any) -> dict[str, Any]:
    """Facts with some of the outermost ones replaced."""
    return {**facts(), **changes}


def with_device(**changes: Any) -> dict[str, Any]:
    """Facts with some of HIP's device 3 replaced."""
    changed = facts()
    changed["hip"]["devices"]["value"][3].update(changes)
    return changed


def with_environment(**changes: str) -> dict[str, Any]:
    """Facts with more environment variables."""
    changed = facts()
    changed["environment"].update(changes)
    return changed


def failed(call: str, status: int) -> dict[str, Any]:
    """A probe whose call failed."""
    return {"failed": {"call": call, "status": status, "name": None}}
