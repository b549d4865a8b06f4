"""The answer of `kimi-k3-specdec check`. Imports little: scripts ask it often."""

from __future__ import annotations

import json
from typing import Any

from .. import _native
from ..errors import UserError
from .examination import show
from .input import read
from .messages import DIFFERENT, refusals

FILE_HINT = "name a JSON file, or `-` for stdin; `--example` prints a deployment"
JSON = "--json"


def plain(words: list[str]) -> tuple[str, bool] | None:
    """FILE and whether JSON is wanted, of the words that scripts pass; None for any others, which have a parser."""
    files = [word for word in words if word == "-" or not word.startswith("-")]
    if len(files) != 1 or len(words) - 1 != words.count(JSON) or words.count(JSON) > 1:
        return None
    return files[0], JSON in words


def answer(file: str | None, serve_arguments: list[str] | None, *, as_json: bool, debug: bool = False) -> int:
    """Prints whether the deployment is served; the exit status."""
    with refusals(debug):
        examination = json.loads(_native.examine(deployment_text(file, serve_arguments)))
        add_code_object(examination)
    if as_json:
        print(json.dumps(examination, indent=1))
    else:
        show(examination)
    return 0 if examination["served"] else DIFFERENT


def deployment_text(file: str | None, serve_arguments: list[str] | None) -> str:
    """The deployment as JSON, from wherever it was given."""
    if serve_arguments is not None and file is not None:
        raise UserError(f"both `{file}` and `-- ARGUMENTS` are given", "give one of them")
    if serve_arguments is not None:
        from .serve_arguments import deployment

        return json.dumps(deployment(serve_arguments), default=repr)
    if file is None:
        raise UserError("no deployment given", "name a JSON file, `-` for stdin, or `-- ARGUMENTS` of `vllm serve`")
    return read(file, FILE_HINT)


def add_code_object(examination: dict[str, Any]) -> None:
    """The size of the code object that serves the deployment, from the package's manifest."""
    from .. import kernels

    memory = examination["memory"]
    if memory is None:
        return
    try:
        image = kernels.code_object(memory["code_object"])
    except kernels.KernelPackageError as error:
        examination["warnings"].append(f"{error}; {error.hint}")
        return
    memory["buffers"]["code_object_bytes"] = len(image)
    memory["total_bytes"] += len(image)
