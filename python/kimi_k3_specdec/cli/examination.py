"""An examination as people read it. Plain text: nothing here needs more than columns."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

WIDTH = 116


def show(examination: dict[str, Any]) -> None:
    """Prints the verdict, what to change, and what would run."""
    for line in lines(examination):
        print(line)


def lines(examination: dict[str, Any]) -> Iterator[str]:
    """The verdict first."""
    refusals, following = examination["refusals"], examination["next"]
    target = examination["target"]
    if examination["served"]:
        yield f"served: {target}"
    elif refusals:
        yield f"refused: {len(refusals)} reason{'s' * (len(refusals) > 1)} ({target})"
    else:
        yield f"not asked for: the deployment would be served ({target})"
    yield from reasons(refusals)
    if following:
        yield "refused next, once those are mended:"
        yield from reasons(following)
    if examination["nearest"]:
        yield "nearest served settings (speculative tokens, max_num_seqs, DCP):"
        yield "  " + ", ".join(
            f"{s['num_speculative_tokens']} x {s['max_num_seqs']} DCP{s['decode_context_parallel_size']}"
            for s in examination["nearest"])
    if examination["warnings"]:
        yield "mind:"
        for warning in examination["warnings"]:
            yield from folded("  - ", warning)
    yield from settings(examination)


def reasons(items: list[dict[str, str]]) -> Iterator[str]:
    """Each reason and, below it, what to change."""
    for item in items:
        yield from folded("  - ", item["reason"])
        yield from folded("      change: ", item["change"])


def settings(examination: dict[str, Any]) -> Iterator[str]:
    """What would run where, and what it takes."""
    config, layers, memory = examination["decode_config"], examination["layers"], examination["memory"]
    yield "would run:"
    if config is not None:
        yield (f"  rows a request {config['q']}, M1 prerequisites {'met' if config['m1'] else 'not met'}, "
               f"interleave {config['interleave']}, max_num_seqs {config['max_num_seqs']}")
        widths = ", ".join(map(str, examination["widths"])) or "none"
        yield f"  rows of a launch: {widths}"
    served = layers["whole"] + layers["ffn"]
    yield (f"  {served} of {layers['num_layers']} layers specialised: {layers['whole']} whole, {layers['ffn']} behind "
           f"vLLM's MLA attention; {layers['launches']} launches a step and rank")
    for step in examination["stock_steps"]:
        yield f"  vLLM's decode: {step}"
    if memory is not None:
        parts = ", ".join(f"{name.removesuffix('_bytes').replace('_', ' ')} {mebibytes(size)}"
                          for name, size in memory["buffers"].items() if size >= 1 << 14)
        yield f"  memory a rank: {mebibytes(memory['total_bytes'])} ({parts})"


def mebibytes(size: int) -> str:
    """A size as people compare them."""
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB"


def folded(prefix: str, text: str) -> list[str]:
    """A paragraph that hangs behind its prefix."""
    return wrap(text, WIDTH, initial_indent=prefix, subsequent_indent=" " * len(prefix), break_on_hyphens=False,
                break_long_words=False)
