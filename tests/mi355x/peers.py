"""Peer memory and graphs of a group's kernels, on whatever HIP there is."""

from __future__ import annotations

import json
from pathlib import Path

from kimi_k3_specdec import _native, kernels


def hip_library() -> Path:
    """The library that the driver loads."""
    return Path(json.loads(_native.probe_hip())["library"]["loaded"])


def exchange(geometry: str, ranks: int, library: Path | None = None) -> list[int]:
    """Every rank hands every rank pairs, in steps of a captured graph, all ranks in one process; returns their epochs.

    `library`: the HIP; None: the installed one. Raises `MachineError` or `DeviceFailure`.
    """
    code_object = kernels.code_object(_native.geometry(geometry, ranks)["code_object"])
    engine = _native.Unlinked(geometry, ranks, [code_object], witness=False, device="hip", library=library).link()
    engine.self_test()
    return [engine.epoch(rank) for rank in range(ranks)]
