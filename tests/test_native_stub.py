"""`_native.pyi` says what the extension has: every name, and every function's parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kimi_k3_specdec import _native

EXCEPTIONS = {name for name, value in vars(_native).items() if isinstance(value, type) and issubclass(value, Exception)}
STUB = Path(_native.__file__).with_name("_native.pyi")


def signature(function: ast.FunctionDef, *, is_method: bool) -> list[str]:
    """Parameters as `inspect` writes them, without types and defaults, and without self."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if is_method and not any(ast.unparse(name) == "staticmethod" for name in function.decorator_list):
        names = names[1:]
    return names + (["*"] if arguments.kwonlyargs else []) + [argument.arg for argument in arguments.kwonlyargs]


def stub() -> dict[str, list[str] | None]:
    """Parameters by qualified name; None for what is no function."""
    found: dict[str, list[str] | None] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = signature(node, is_method=False)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = None
        elif isinstance(node, ast.ClassDef):
            found[node.name] = None
            # Instances of exceptions carry theirs.
            for member in [] if node.name in EXCEPTIONS else node.body:
                if isinstance(member, ast.FunctionDef):
                    found[f"{node.name}.{member.name}"] = signature(member, is_method=True)
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    found[f"{node.name}.{member.target.id}"] = None
    return found


def parameters(function: Any) -> list[str] | None:
    """What PyO3 says of a function, without self and defaults; None where it says nothing, as of `__call__`."""
    text = getattr(function, "__text_signature__", None)
    if text is None or "**kwargs" in text:
        return None
    names = [name.split("=")[0].strip() for name in text.strip("()").split(", ")]
    return [name for name in names if name not in ("", "$self", "/")]


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """What a class of the extension has itself; `__init__` is its constructor."""
    for name, value in vars(owner).items():
        if name == "__new__" and owner.__text_signature__ is not None:
            yield "__init__", owner
        elif not name.startswith("__") or name == "__call__":
            yield name, value


def extension() -> dict[str, list[str] | None]:
    """The same of the extension."""
    found: dict[str, list[str] | None] = {}
    for name, value in vars(_native).items():
        if name.startswith("__") and name != "__version__":
            continue
        if not isinstance(value, type):
            found[name] = parameters(value)
            continue
        found[name] = None
        if name not in EXCEPTIONS:
            found |= {f"{name}.{member}": parameters(of) for member, of in members(value)}
    return found


def test_the_stub_is_the_extensions() -> None:
    """No name too many, none too few; the same parameters in the same order."""
    said, there = stub(), extension()
    assert sorted(said) == sorted(there), {"only in the stub": sorted(said.keys() - there.keys()),
                                           "missing in the stub": sorted(there.keys() - said.keys())}
    others = {name: (said[name], there[name]) for name in said
              if there[name] is not None and said[name] is not None and said[name] != there[name]}
    assert not others
