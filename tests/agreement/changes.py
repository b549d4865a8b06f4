"""How a deployment differs from another, by dotted paths: what keeps the record short and its diffs readable."""

from __future__ import annotations

import copy
from typing import Any

ABSENT = object()


def changes(before: Any, after: Any, path: str = "") -> dict[str, Any]:
    """Paths at which ``after`` differs, with its values. A section that gains or loses a key is one change."""
    if before == after and type(before) is type(after):
        return {}
    if not (isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys()):
        return {path: after}
    found: dict[str, Any] = {}
    for key, value in after.items():
        found |= changes(before[key], value, f"{path}.{key}" if path else key)
    return found


def changed(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """``before`` with the ``found`` changes: the inverse of `changes`. The value `ABSENT` takes a key out."""
    after = copy.deepcopy(before)
    for path, value in found.items():
        *sections, key = path.split(".")
        section = after
        for name in sections:
            section = section[name]
        if value is ABSENT:
            section.pop(key, None)
        else:
            section[key] = value
    return after


def leaves(section: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Every value below ``section`` that is no section itself, by path."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        below = f"{path}.{key}" if path else key
        found |= leaves(value, below) if isinstance(value, dict) and value else {below: value}
    return found
