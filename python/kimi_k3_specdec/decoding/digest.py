"""What a run left behind, as digests: equal digests mean equal bits."""

from __future__ import annotations

import hashlib

import torch

from ..reference.kda import KdaState
from .checks.run import RunRecord
from .exchanges import PAIR_REGIONS, ROW_REGIONS, parts
from .slots import StatePages


class Digests:
    """Every exchanged payload by request, so that runs of other widths can be compared request by request."""

    def __init__(self, requests: int, rows_per_request: int) -> None:
        """Nothing seen yet."""
        self._rows = rows_per_request
        self._payloads = [hashlib.sha256() for _ in range(requests)]
        self._is_empty = True

    def add(self, record: RunRecord) -> None:
        """Takes in all images of a launch that passed its checks."""
        self._is_empty &= not record.exchanges
        for layer, exchanges in record.exchanges.items():
            for region in (*ROW_REGIONS, *PAIR_REGIONS):
                for owner in range(len(record.after)):
                    image = exchanges.image(owner, region)
                    if image is None:
                        continue
                    for part, tensor in zip(parts(region, exchanges.shard), image.tensors(), strict=True):
                        count = self._rows * part.rows_per_row
                        for request, digest in enumerate(self._payloads):
                            rows = tensor.narrow(part.row_axis, request * count, count).contiguous()
                            digest.update(f"{layer} {region} {part.name} {owner}".encode())
                            digest.update(rows.view(-1).view(torch.uint8).numpy().tobytes())

    @property
    def payloads(self) -> list[str]:
        """SHA-256 by request; nothing where no exchange was kept."""
        return [] if self._is_empty else [digest.hexdigest() for digest in self._payloads]


def rank_states_digest(states: dict[int, KdaState]) -> str:
    """SHA-256 of one rank's states by layer, slot by slot, without what lies between them."""
    digest = hashlib.sha256()
    for layer in sorted(states):
        for state in (states[layer].conv, states[layer].recurrent):
            digest.update(state.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def states_digest(pages: dict[int, list[StatePages]]) -> str:
    """SHA-256 of every state page of every layer and rank."""
    digest = hashlib.sha256()
    for layer in sorted(pages):
        for page in pages[layer]:
            digest.update(page.pages.numpy().tobytes())
    return digest.hexdigest()
