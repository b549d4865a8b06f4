"""The executor over vLLM's loaded model, and what the log says of it."""

from __future__ import annotations

import logging
from typing import Any

from .. import _native, kernels
from ..runtime.decode import SpecializedDecode
from .host import VllmHost
from .metrics import Publisher
from .settings import EMULATOR, Settings

logger = logging.getLogger(f"vllm.{__name__}")


def build(backbone: Any, vllm_config: Any, settings: Settings) -> tuple[SpecializedDecode, VllmHost]:
    """Collective over the tensor-parallel group. Raises ValueError or RuntimeError on every rank, or on none."""
    host = VllmHost(backbone, vllm_config)
    if settings.device == EMULATOR and host.rank == 0:
        logger.warning("decode_device=emulator: the kernels of %s run in an emulator of the GPU on this machine's CPU, "
                       "for tests; a step takes a thousand times as long", settings.geometry)
    decode = SpecializedDecode(backbone, settings.config, host, device=settings.device, geometry=settings.geometry)
    host.publisher = Publisher(host.rank)
    if host.rank == 0:
        logger.info("%s", summary(decode, settings))
    return decode, host


def summary(decode: Any, settings: Settings) -> str:
    """Everything that was resolved, on one line."""
    shard = _native.geometry(settings.geometry, decode.host.ranks)
    name = shard["code_object"]
    entry = next(entry for entry in kernels.manifest()["objects"] if entry["name"] == name)
    runs = decode.executor.runs()
    config = settings.config
    return (f"Kimi-K3 specialized decode: device {settings.device}, geometry {settings.geometry}, "
            f"TP {decode.host.ranks}, {config.q} rows a request, widths {list(config.widths)}, "
            f"{len(decode.kinds)} layers in {len(runs)} launches a step {runs}, "
            f"{shard['memory_bytes'] / 2**20:.1f} MiB a rank, code object {name} {entry['sha256'][:12]}")
