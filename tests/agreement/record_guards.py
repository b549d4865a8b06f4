"""Records what the real vLLM's guards say of stand-ins for a loaded model and its states: `python record_guards.py
OUT.json`, by the Python of an environment that has it.

The guards take their shapes from vLLM's kernels, which import a compiler that needs a GPU's toolkit: a stand-in for
that compiler lets them be imported, and nothing of it is called.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from record import HERE, prepare

sys.path.insert(0, str(HERE.parent))
COMPILER = ("flydsl", "aiter")


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the kernels' compiler, each a mock."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Every module of the compiler's packages."""
        found = name.split(".")[0] in COMPILER
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """A mock with what the import system asks for."""
        return mock.MagicMock(name=spec.name, __path__=[], __spec__=spec)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def record() -> dict[str, Any]:
    """vLLM's reasons by case."""
    import vllm
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
    from vllm.models.kimi_k3.amd.specialized_decode.runtime import guards

    from runtime import loaded, loaded_cases

    sys.meta_path.insert(0, StandIn())
    backend = Mxfp4MoeBackend.__getitem__
    return {
        "vllm": vllm.__version__,
        "cases_sha256": loaded.sources_hash(),
        "weights": {name: guards.weight_reasons(case.apply(loaded.model(backend), backend))
                    for name, case in loaded_cases.WEIGHTS.items()},
        "states": {name: guards.cache_reasons({loaded_cases.NAME: make()})
                   for name, (make, _) in loaded_cases.STATES.items()},
    }


def main(arguments: list[str]) -> int:
    """Writes the record to the file that the only argument names."""
    if len(arguments) != 1:
        print("usage: python record_guards.py OUT.json", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as cache:
        prepare(Path(cache))
        Path(arguments[0]).write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
