"""The GPUs of this process, as far as vLLM or torch, where imported, know them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlatformFacts:
    """vLLM's kind of platform, the target of the GPU's code, and the compute units of one GPU that the process sees."""

    kind: str
    gfx: str | None = None
    compute_units: int | None = None

    def facts(self) -> dict[str, Any]:
        """As a section of the deployment."""
        return {"kind": self.kind, "gfx": self.gfx, "compute_units": self.compute_units}


UNKNOWN = PlatformFacts("unknown")
"""Neither vLLM nor torch can say: refused like any other platform that is not ROCm."""


def find() -> PlatformFacts:
    """The current platform. vLLM's own view counts; without it, torch's build."""
    vllm, torch = sys.modules.get("vllm.platforms"), sys.modules.get("torch")
    if vllm is not None:
        current = vllm.current_platform
        if not current.is_rocm():
            return PlatformFacts(str(current.device_type))
    elif torch is None or torch.version.hip is None:
        return UNKNOWN if torch is None else PlatformFacts("cuda" if torch.version.cuda else "cpu")
    return _rocm(torch)


def _rocm(torch: Any) -> PlatformFacts:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    gfx = str(properties.gcnArchName).split(":")[0]
    return PlatformFacts("rocm", gfx, int(properties.multi_processor_count))
