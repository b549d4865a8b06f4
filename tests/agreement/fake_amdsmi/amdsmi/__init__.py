"""Stand-in for AMD's `amdsmi` binding: an idle host of eight MI355X.

On PYTHONPATH of the vLLM environment only. With it vLLM detects ROCm and builds configs as on such a host;
``SPECDEC_FAKE_GFX`` names another GPU architecture.
"""

import enum
import os

NUM_GPUS = 8
MEMORY_BYTES = 288 << 30


class AmdSmiException(Exception):
    """What the binding raises; this stand-in never does."""


class AmdSmiMemoryType(enum.IntEnum):
    """The memory kinds that a caller may ask the size of."""

    VRAM = 0
    VIS_VRAM = 1
    GTT = 2


def amdsmi_init(*_flags: int) -> None:
    """Nothing to open."""


def amdsmi_shut_down() -> None:
    """Nothing to close."""


def amdsmi_get_processor_handles() -> list[int]:
    """One handle a GPU: its index."""
    return list(range(NUM_GPUS))


def amdsmi_get_gpu_asic_info(_handle: int) -> dict[str, str]:
    """Name, PCI device and architecture of a GPU."""
    return {
        "market_name": "AMD Instinct MI355X",
        "device_id": "0x75a3",
        "target_graphics_version": os.environ.get("SPECDEC_FAKE_GFX", "gfx950"),
    }


def amdsmi_get_gpu_device_uuid(handle: int) -> str:
    """A name that differs from GPU to GPU."""
    return f"stand-in-{handle}"


def amdsmi_get_gpu_memory_total(_handle: int, _kind: AmdSmiMemoryType) -> int:
    """Bytes of memory, of whatever kind."""
    return MEMORY_BYTES


def amdsmi_topo_get_link_type(_first: int, _second: int) -> dict[str, int]:
    """Every GPU reaches every other one over one XGMI link."""
    return {"hops": 1, "type": 2}


def amdsmi_topo_get_numa_node_number(_handle: int) -> int:
    """A host of one NUMA node."""
    return 0
