"""How a layer's tasks and weights are shared out over the workgroups, and its hops: from the task tables alone."""

from __future__ import annotations

import json
from typing import Any

from kimi_k3_specdec import _native

WIDTHS = ((1, 1), (1, 4), (2, 4), (2, 8))
"""(requests, rows of a request) whose balance is printed: 1, 4, 8 and 16 rows. One row is decoding without drafts,
which no verify step is: it is only shared out."""


def share(geometry: str, ranks: int, requests: int, rows_per_request: int, experts: int, *,
          whole: bool = True) -> dict[str, Any]:
    """One layer whose rows pick `experts` different experts; see `specdec-core`'s `Balance`."""
    return json.loads(_native.balance(geometry, ranks, requests=requests, rows_per_request=rows_per_request,
                                      experts=experts, whole=whole))


def widths(geometry: str, ranks: int, seed: int, *, whole: bool = True) -> list[dict[str, Any]]:
    """The balance of every width of `WIDTHS`, each with the experts of a seeded random routing."""
    rows = []
    for requests, per_request in WIDTHS:
        experts = _native.seeded_union(geometry, ranks, requests * per_request, seed)
        found = share(geometry, ranks, requests, per_request, experts, whole=whole)
        rows.append({"rows": requests * per_request, "requests": requests, "rows_per_request": per_request}
                    | {key: found[key] for key in ("experts", "layer", "layer_holds", "expert_phase",
                                                   "expert_phase_holds")})
    return rows


def hops(geometry: str, ranks: int, requests: int, rows_per_request: int, *, whole: bool = True,
         writes_block: bool = False) -> list[dict[str, Any]]:
    """The exchanges on a layer's critical path, in order."""
    return json.loads(_native.critical_path(geometry, ranks, requests=requests, rows_per_request=rows_per_request,
                                            whole=whole, writes_block=writes_block))


def spread(cta_bytes: list[int]) -> dict[str, float]:
    """Of bytes by workgroup, as `Balance` has it."""
    most, mean = max(cta_bytes), sum(cta_bytes) / len(cta_bytes)
    return {"max": most, "min": min(cta_bytes), "mean": mean, "ratio": most / mean if mean else 1.0}
