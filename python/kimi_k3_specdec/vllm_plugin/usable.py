"""Whether this installation can serve at all: the extension, the code objects, vLLM's version. Needs none of them."""

from __future__ import annotations

from importlib import metadata
from typing import Any

BACKEND_KEY, AUTO = "decode_backend", "auto"
"""The switch in `additional_config`, and the value that leaves vLLM as it is."""

TESTED = "0.33"
"""The vLLM that this release was tested with, up to the patch level."""


def is_asked_for(vllm_config: Any) -> bool:
    """Whether the switch has another value than vLLM's own decode, a misspelled one included."""
    extra = getattr(vllm_config, "additional_config", None)
    return isinstance(extra, dict) and extra.get(BACKEND_KEY, AUTO) != AUTO


def installation_reasons() -> list[str]:
    """Everything that is wrong with this installation; empty: nothing."""
    return [*_version_reasons(), *_extension_reasons()]


def _version_reasons() -> list[str]:
    try:
        found = metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return []  # a source tree on the path, which has no version to compare
    if found.split("+")[0].split(".")[:2] == TESTED.split("."):
        return []
    return [f"vLLM {found} (this release was tested with vLLM {TESTED}; install `vllm=={TESTED}.*`, or a release of "
            "kimi-k3-specdec for yours)"]


def _extension_reasons() -> list[str]:
    try:
        from .. import kernels
    except ImportError as error:
        return [f"the extension `kimi_k3_specdec._native` does not load: {error} (install the wheel again)"]
    try:
        for entry in kernels.manifest()["objects"]:
            kernels.code_object(entry["name"])
    except kernels.KernelPackageError as error:
        return [f"{error} ({error.hint})"]
    return []


def require() -> None:
    """Raises ValueError with every reason of `installation_reasons`."""
    if reasons := installation_reasons():
        raise ValueError(f"Kimi-K3 specialized decode cannot run here: {'; '.join(reasons)} "
                         "(decode_backend=auto runs vLLM's decode)")
