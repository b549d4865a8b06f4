"""Records what the real vLLM says of every deployment of `configs`: `python record.py OUT.json`, by the Python of an
environment that has it.

vLLM sees an idle MI355X host (``fake_amdsmi``); only what asks a driver is replaced. One line of the output is one
deployment: vLLM's answers, and our own extraction of the facts from the same objects.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from changes import changes, leaves
from configs import ENVIRONMENT, PLATFORM, SERVED, TEXT, Built, Case, table, table_hash

HERE = Path(__file__).resolve().parent
STAND_IN = str(HERE / "fake_amdsmi")
PACKAGE = HERE.parent.parent / "python" / "kimi_k3_specdec"
OUTSIDE_CONFIG = ("environment", "platform")
OWN_VARIABLES = ("VLLM_", "AITER_", "SPECDEC_")
HOST = {
    # Triton counts drivers unless no GPU is visible, and vLLM's V2 runner needs Triton.
    "HIP_VISIBLE_DEVICES": "",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # vLLM inspects the model class in a process of its own.
    "PYTHONPATH": STAND_IN,
}


def prepare(cache: Path) -> None:
    """Makes this process one in which vLLM finds the stand-in host and nothing of the caller's settings."""
    for name in [name for name in os.environ if name.startswith(OWN_VARIABLES)]:
        del os.environ[name]
    os.environ.update(HOST, VLLM_CACHE_ROOT=str(cache))
    sys.path.insert(0, STAND_IN)


def extraction() -> Callable[[Any], dict[str, Any]]:
    """Our own extraction, alone: the package around it needs its extension, which vLLM's Python need not have."""
    for name, folder in (("kimi_k3_specdec", PACKAGE), ("kimi_k3_specdec.runtime", PACKAGE / "runtime")):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    return importlib.import_module("kimi_k3_specdec.runtime.facts").deployment


@contextmanager
def variables(changes: dict[str, str | None]) -> Iterator[None]:
    """Environment variables for a while; None unsets one."""
    with mock.patch.dict(os.environ):
        for name, value in changes.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield


@contextmanager
def hardware(platform: dict[str, Any]) -> Iterator[None]:
    """vLLM's questions to the hardware, answered by ``platform``."""
    from vllm.platforms import current_platform

    properties = SimpleNamespace(gcnArchName=platform["gfx"], multi_processor_count=platform["compute_units"])

    with ExitStack() as patches:
        kind = type(current_platform)
        patches.enter_context(mock.patch.object(kind, "is_rocm", lambda _self: platform["kind"] == "rocm"))
        patches.enter_context(mock.patch("vllm.platforms.rocm.on_gfx950", lambda: platform["gfx"] == "gfx950"))
        if platform["kind"] != "rocm":
            # On ROCm vLLM's device type is torch's, "cuda".
            patches.enter_context(mock.patch.object(kind, "device_type", platform["kind"]))
        patches.enter_context(mock.patch("torch.cuda.current_device", lambda: 0))
        patches.enter_context(mock.patch("torch.cuda.get_device_properties", lambda *_device: properties))
        yield


def attribute_of(value: Any) -> Any:
    """A table's value as vLLM holds it: `configs.Built` as the object that it stands for."""
    import vllm.config

    return getattr(vllm.config, value.class_name)(**value.arguments) if isinstance(value, Built) else value


def build(case: Case, scratch: Path) -> Any:
    """The `VllmConfig` of a case."""
    from vllm import EngineArgs

    text = {key: value for key, value in {**TEXT, **case.text}.items() if value is not None}
    model = Path(tempfile.mkdtemp(dir=scratch))
    (model / "config.json").write_text(json.dumps(text), encoding="utf-8")
    vllm_config = EngineArgs(model=str(model), **{**SERVED, **case.args}).create_engine_config()
    for path, value in case.attributes.items():
        *parents, name = path.split(".")
        owner = vllm_config
        for parent in parents:
            owner = getattr(owner, parent)
        if not hasattr(owner, name):
            raise AttributeError(f"vLLM's {type(owner).__name__} has no `{name}`: the case sets what nobody reads")
        setattr(owner, name, attribute_of(value))
    return vllm_config


def layer_letters(vllm_config: Any) -> str:
    """vLLM's kernel of each layer: `w`hole, `f`fn or `-`."""
    from vllm.models.kimi_k3.amd.specialized_decode import runtime

    text = vllm_config.model_config.hf_text_config
    kinds = runtime.layer_kinds(text)
    return "".join(kinds.get(layer, "-")[0] for layer in range(text.num_hidden_layers))


def answers(vllm_config: Any) -> tuple[list[str], dict[str, Any]]:
    """vLLM's reasons, and what else its package says of a deployment: settings or error, warning, layers."""
    from vllm.models.kimi_k3.amd.specialized_decode import runtime

    reasons = runtime.unsupported(vllm_config)
    error, decode = None, None
    try:
        decode = runtime.specialized_decode_config(vllm_config)
    except ValueError as refused:
        error = str(refused).replace("; ".join(reasons) or "{}", "{reasons}")
    return reasons, {
        "backend": runtime.decode_backend(vllm_config),
        "rows_per_request": decode and decode.q,
        "error": error,
        "piecewise_only": runtime.piecewise_graphs_only(vllm_config),
        "layers": layer_letters(vllm_config),
    }


def default_of(owner: type, name: str) -> dict[str, Any]:
    """Annotation and default of a field of one of vLLM's config classes."""
    from pydantic.fields import FieldInfo

    (found,) = [candidate for candidate in dataclasses.fields(owner) if candidate.name == name]
    default = found.default.default if isinstance(found.default, FieldInfo) else found.default
    annotation = found.type if isinstance(found.type, str) else getattr(found.type, "__name__", str(found.type))
    if "[" in str(found.type) or "|" in str(found.type):
        annotation = str(found.type)
    known = default is None or isinstance(default, (bool, int, float, str))
    return {"type": annotation, "default": default if known else repr(default)}


def defaults(vllm_config: Any, facts: dict[str, Any]) -> dict[str, Any]:
    """vLLM's own type and default of every field of its config classes that our extraction reads."""
    found = {}
    for path in leaves({key: value for key, value in facts.items() if key not in OUTSIDE_CONFIG}):
        *parents, name = path.split(".")
        owner = vllm_config
        for parent in parents:
            owner = getattr(owner, parent)
        if dataclasses.is_dataclass(owner) and name in {candidate.name for candidate in dataclasses.fields(owner)}:
            found[path] = default_of(type(owner), name)
    return found


def record() -> dict[str, Any]:
    """The whole record."""
    import vllm

    deployment = extraction()
    document: dict[str, Any] = {"vllm": vllm.__version__, "table_sha256": table_hash()}
    answered = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in table().items():
            platform = {**PLATFORM, **case.platform}
            with variables({**ENVIRONMENT, **case.environment}), hardware(platform):
                try:
                    vllm_config = build(case, Path(folder))
                except ValueError as error:
                    raise ValueError(f"vLLM refuses to build case `{name}`: {error}") from error
                facts = json.loads(json.dumps(deployment(vllm_config), default=repr))
                reasons, answer = answers(vllm_config)
            if name == "served":
                document |= {"served": facts, "answer": answer, "defaults": defaults(vllm_config, facts)}
            answered[name] = {
                "upstream": reasons,
                "answer": changes(document["answer"], answer),
                "deployment": changes(document["served"], facts),
            }
    return document | {"configs": answered}


def lines(document: dict[str, Any]) -> str:
    """JSON with one line per field and per deployment, so that a change of the record reads as one."""
    parts = []
    for key, value in document.items():
        if key in ("defaults", "configs"):
            entries = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            parts.append(f"{json.dumps(key)}: {{\n{entries}\n }}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Writes the record to the file that the only argument names."""
    if len(arguments) != 1:
        print("usage: python record.py OUT.json", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as cache:
        prepare(Path(cache))
        Path(arguments[0]).write_text(lines(record()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
