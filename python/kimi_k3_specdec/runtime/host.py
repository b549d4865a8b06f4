"""What the executor needs of the engine that it decodes for: vLLM behind its plug-in, or a test's stand-in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class ForwardContext(Protocol):
    """vLLM's forward context, as far as plans read it."""

    cudagraph_runtime_mode: Any
    """vLLM's `CUDAGraphMode`, or anything with its `name`."""
    attn_metadata: Any
    """Metadata by layer name, where it is a dict."""


@dataclass(frozen=True)
class FinalSettings:
    """Settings that are final once vLLM binds caches, and not before.

    `interleave`: tokens of KV that a context-parallel rank holds in a row; `decode_graphs`: how decode steps are
    captured, `NONE`, `PIECEWISE` or `FULL`, after vLLM has resolved it against what its backends support.
    """

    interleave: int = 1
    decode_graphs: str = "FULL"


class Host(Protocol):
    """One tensor-parallel rank of an engine."""

    rank: int
    ranks: int
    group: Any
    """The ranks' torch.distributed group of CPU tensors (gloo); None: one rank."""

    def forward_context(self) -> ForwardContext | None:
        """The context of the forward that runs, if there is one."""
        ...

    def is_capturing(self) -> bool:
        """Whether the rank's current stream is being captured."""
        ...

    def stream(self) -> int | None:
        """The stream that the forward queues to, a `hipStream_t`; None: the kernels' own, where they run on a CPU."""
        ...

    def attention_half(self, layer: int, positions: Tensor, prefix: Tensor, blocks: Tensor,
                       delta: Tensor | None) -> Tensor:
        """An MLA layer up to o_proj's input, bf16 [S, heads * head_dim]; leaves `delta` added to `prefix` (§2, §10)."""
        ...

    def state_groups(self) -> Mapping[str, int]:
        """Each KDA layer's cache group by the layer's name, numbered from 0: layers of one share their metadata (§3.2).
        Asked for at every bind of the caches.
        """
        ...

    def final_settings(self) -> FinalSettings:
        """What vLLM may change between the model's construction and its caches (§10, §12). Asked for at every bind."""
        ...

    def outputs_read(self) -> Sequence[int]:
        """Layers whose output something else reads: auxiliary hidden states of the drafter."""
        ...
