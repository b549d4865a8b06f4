"""Engines of the real vLLM, each in a process of its own, on a tiny Kimi-K3 on the CPU."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "agreement"))

import environment  # noqa: E402

GROUP = "vllm.general_plugins"
SWITCHES = {
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_USE_V2_MODEL_RUNNER": "1", "VLLM_CPU_CI_ENV": "1",
    "VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE": "1",
    # Kernels of Triton run in its interpreter, which wants no GPU to be visible.
    "TRITON_INTERPRET": "1", "VLLM_TRITON_FORCE_FIRST_CONFIG": "1", "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "KIMI_K3_ON_CPU": "1",
    # One core a worker, and waiting ones asleep: with vLLM's own binding an engine takes ten times as long.
    "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "GLOO_SOCKET_IFNAME": "lo",
}
LEAVING_SECONDS = 10
"""Python's own helper processes end behind the last of the engine's."""

OWN_VARIABLES = ("VLLM_", "AITER_", "KIMI_K3_", "PROMETHEUS_")


@dataclass(frozen=True)
class Outcome:
    """What came of an engine: the answer of `drive.py`, and the log of all of its processes."""

    answer: dict[str, Any]
    log: str
    leftovers: list[str]
    """Commands of its processes that are still there when it has ended."""

    @property
    def tokens(self) -> list[list[int]]:
        """Of every prompt; an engine that failed shows its log instead."""
        assert "tokens" in self.answer, f"{self.answer}\n{self.log[-6000:]}"
        return self.answer["tokens"]

    @property
    def seen(self) -> list[list[int]]:
        """Tokens of every prompt that left an engine which was asked for a stream, before it ended."""
        assert "seen" in self.answer, f"{self.answer}\n{self.log[-6000:]}"
        return self.answer["seen"]

    @property
    def error(self) -> str:
        """What reached the user."""
        assert "error" in self.answer, self.answer
        return self.answer["error"]["text"]

    def metric(self, name: str) -> float:
        """A metric of ours, summed over its labels."""
        prefix = f"kimi_k3_specdec_{name}["
        return sum(value for key, value in self.answer["metrics"].items() if key.startswith(prefix))

    def specialized_requests(self) -> float:
        """Requests that our kernels verified, over all steps of four rows a request."""
        prefix = "kimi_k3_specdec_specialized_steps_total["
        return sum(value * int(key.split("'")[3]) / 4 for key, value in self.answer["metrics"].items()
                   if key.startswith(prefix))

    def drafted_requests(self) -> float:
        """The same over all steps that verified drafts, by vLLM's own count."""
        return sum(value for key, value in self.answer["metrics"].items()
                   if key.startswith("vllm:spec_decode_num_drafts_total["))

    def acceptance(self) -> float:
        """Accepted drafts of a request's step, in the mean, by vLLM's own count."""
        accepted = sum(value for key, value in self.answer["metrics"].items()
                       if key.startswith("vllm:spec_decode_num_accepted_tokens_total["))
        return accepted / self.drafted_requests()


def entry_points(folder: Path, *, with_ours: bool) -> list[Path]:
    """Folders for the path of an engine, with the entry points that an installation would have: the stand-ins', and
    ours as `pyproject.toml` declares it.
    """
    import tomllib  # of Python 3.11, as vLLM's environment is; this module is imported by older ones too

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
    plugins = {"kimi_k3_on_cpu": {"kimi_k3_on_cpu": "kimi_k3_on_cpu:register"}}
    if with_ours:
        plugins["kimi_k3_specdec"] = declared
    made = []
    for name, points in plugins.items():
        info = folder / name / f"{name}-0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        lines = [f"{point} = {target}" for point, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
        made.append(folder / name)
    return made


def variables(folder: Path, case: dict[str, Any], *, with_ours: bool) -> dict[str, str]:
    """The environment of an engine; nothing of the caller's settings of vLLM is in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    path = [*entry_points(folder / "plugins", with_ours=with_ours), HERE / "plugins",
            ROOT / "tests" / "agreement" / "fake_amdsmi", ROOT / "python"]
    ranks, processes = case.get("ranks", 1), case.get("processes", False)
    return kept | SWITCHES | {
        "PYTHONPATH": os.pathsep.join(map(str, path)), "VLLM_CACHE_ROOT": str(folder / "cache"),
        "VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, range(ranks))),
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(processes)),
    } | case.get("variables", {})


def run(folder: Path, case: dict[str, Any], *, with_ours: bool = True, timeout_seconds: float = 600) -> Outcome:
    """One engine from start to end. Raises AssertionError with its log where it gives no answer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(case))
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    command = [environment.python(), HERE / "drive.py", folder / "case.json", answer]
    with (folder / "log").open("w") as log:
        subprocess.run(list(map(str, command)), env=variables(folder, case, with_ours=with_ours), stdout=log,
                       stderr=subprocess.STDOUT, timeout=timeout_seconds, check=False)
    text = (folder / "log").read_text(errors="replace")
    assert answer.exists(), text[-6000:]
    return Outcome(json.loads(answer.read_text()), text, alive(folder))


def alive(folder: Path) -> list[str]:
    """Commands of the processes whose environment names `folder`, those left out that end in the next seconds."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while (found := _commands(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _commands(folder: Path) -> list[str]:
    found, mark = [], f"VLLM_CACHE_ROOT={folder / 'cache'}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def checkpoint(path: Path, name: str = "nano", seed: int = 0) -> Path:
    """A seeded checkpoint whose experts vLLM loads by the stand-ins' method."""
    from kimi_k3_specdec.reference import checkpoint as reference
    from kimi_k3_specdec.reference.geometry import by_name

    reference.make(path, by_name(name), seed)
    config = path / "config.json"
    made = json.loads(config.read_text()) | {"quantization_config": {"quant_method": "kimi_k3_test_mxfp4"}}
    config.write_text(json.dumps(made, indent=1))
    return path


def prompts(name: str = "nano", seed: int = 0, count: int = 2) -> list[list[int]]:
    """Prompts of tokens that the checkpoint's own successors are drawn from, of different lengths."""
    import torch

    from kimi_k3_specdec.reference.chain import active_tokens
    from kimi_k3_specdec.reference.geometry import by_name

    generator = torch.Generator().manual_seed(seed)
    active = active_tokens(by_name(name))
    return [active[torch.randint(len(active), (5 + index,), generator=generator)].tolist() for index in range(count)]
