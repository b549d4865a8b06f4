"""One run from its options to its outcome: checks what was asked for, makes what it needs, decodes."""

from __future__ import annotations

import time

import torch

from .. import _native
from ..errors import UserError
from ..reference.geometry import Geometry, by_name
from .explore import explore
from .machine import load_code_objects
from .options import RunOptions
from .outcome import Outcome
from .prepared import Prepared
from .real_layer import run_layer
from .session import Progress

WHOLE_MODEL_BYTES = 1 << 30
"""A geometry whose layer is larger is run a layer at a time."""


def run(options: RunOptions, progress: Progress) -> Outcome:
    """Runs what `options` say. Raises UserError, or an error with a `hint`, when that cannot start."""
    started = time.perf_counter()
    _check(options)
    geometry = by_name(options.geometry)
    # Threads cost more than they give on tensors of nano's size.
    torch.set_num_threads(torch.get_num_threads() if is_real(geometry) else 1)
    name, code_object = load_code_objects(options.geometry, options.ranks)
    if is_real(geometry) and (options.check == "races" or options.schedules > 1):
        raise UserError(f"`{geometry.name}`: races are checked and schedules explored on small models only; the clocks "
                        "of its 2,048 waves a rank would fill the memory", "choose --geometry nano or nano-deep")
    if is_real(geometry):
        outcome = run_layer(options, geometry, name, code_object, progress)
    else:
        outcome = explore(Prepared(options, geometry, name, code_object, progress), progress)
    outcome.seconds["total"] = time.perf_counter() - started
    return outcome


def is_real(geometry: Geometry) -> bool:
    """Whether the model is too large to be made as a checkpoint here."""
    return geometry.hidden * geometry.hidden * geometry.num_layers > WHOLE_MODEL_BYTES


def _check(options: RunOptions) -> None:
    """Everything that the options alone can get wrong."""
    if options.device != "emulator":
        raise UserError(f"device `{options.device}` cannot be used: this release runs the kernels in the emulator only",
                      "leave --device out, or say --device emulator")
    options.check_ranges()
    served = _native.geometry(options.geometry, options.ranks)["served"]
    _native.step_rows(options.requests, options.speculative_tokens)
    if options.layers is not None:
        first, last = options.layers
        unserved = [i for i in range(first, last + 1) if i not in served]
        if unserved:
            raise UserError(f"layers {first}-{last}: the kernels do not serve {_ranges(unserved)} of "
                          f"`{options.geometry}`", f"choose among {_ranges(sorted(served))}")
    if options.fault is not None and options.fault.rank >= options.ranks:
        raise UserError(f"fault `{options.fault}`: there is no rank {options.fault.rank}",
                      f"name a rank of 0 to {options.ranks - 1}")


def _ranges(layers: list[int]) -> str:
    """`1-5, 7`."""
    out: list[list[int]] = []
    for layer in layers:
        if out and layer == out[-1][1] + 1:
            out[-1][1] = layer
        else:
            out.append([layer, layer])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in out)
