"""FULL graphs with padded requests, over vLLM's own metadata: replays leave the bits of eager steps."""

from __future__ import annotations

import json
import subprocess

import engine
import environment
import pytest
from rig import Rig

from kimi_k3_specdec.decoding import fake_hip

pytestmark = pytest.mark.vllm


def test_replays_over_vllms_metadata_give_the_bits_of_eager_steps(rig: Rig) -> None:
    """Every width; four eager steps between twenty replays, some of them padded."""
    out, folder = rig.folder / "replays.json", rig.folder / "replays"
    command = [environment.python(), engine.HERE / "replays.py", rig.case["model"], fake_hip.library(), out]
    done = subprocess.run(list(map(str, command)), env=engine.variables(folder, rig.case, with_ours=False),
                          capture_output=True, text=True, timeout=600, check=False)
    assert out.exists(), done.stdout[-3000:] + done.stderr[-6000:]
    found = json.loads(out.read_text())
    assert found["differences"] == {}
    # Four warm-ups, one for each width.
    assert sum(found["counters"]["specialized"].values()) == found["steps"] + 4
    assert found["counters"]["padded_rows"] > 0 and not found["counters"]["stock"]
