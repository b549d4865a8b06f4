"""One run from its options to its outcome: checks what was asked for, makes what it needs, decodes."""

from __future__ import annotations

import time

import torch

from ..errors import UserError
from ..reference.geometry import Geometry, by_name
from .explore import explore
from .machine import load_code_objects
from .options import RunOptions, check_served
from .outcome import Outcome
from .prepared import Prepared
from .processes import run_processes
from .real_layers import run_layers
from .session import Progress

WHOLE_MODEL_BYTES = 1 << 30
"""A geometry whose layers are larger is run a launch at a time, without a checkpoint."""


def run(options: RunOptions, progress: Progress) -> Outcome:
    """Runs what `options` say. Raises UserError, or an error with a `hint`, when that cannot start."""
    started = time.perf_counter()
    check_served(options)
    geometry = by_name(options.geometry)
    # Threads cost more than they give on tensors of nano's size.
    torch.set_num_threads(torch.get_num_threads() if is_real(geometry) else 1)
    name, code_object = load_code_objects(options.geometry, options.ranks)
    if is_real(geometry) and (options.check == "races" or options.schedules > 1):
        raise UserError(f"`{geometry.name}`: races are checked and schedules explored on small models only; the clocks "
                        "of its 2,048 waves a rank would fill the memory", "choose --geometry nano or nano-deep")
    if is_real(geometry) and options.processes:
        raise UserError(f"`{geometry.name}` runs in one process: eight would need eight times its weights' memory",
                        "choose --geometry nano or nano-deep, or leave out --processes")
    if is_real(geometry) and options.device != "emulator":
        raise UserError(f"`{geometry.name}` runs in the emulator only: no device but it can leave out experts",
                        "choose --geometry nano or nano-deep, or leave out --device")
    if is_real(geometry):
        outcome = run_layers(options, geometry, name, code_object, progress)
    elif options.processes:
        outcome = run_processes(Prepared(options, geometry, name, code_object, progress), progress)
    else:
        outcome = explore(Prepared(options, geometry, name, code_object, progress), progress)
    outcome.seconds["total"] = time.perf_counter() - started
    return outcome


def is_real(geometry: Geometry) -> bool:
    """Whether the model is too large to be made as a checkpoint here."""
    return geometry.hidden * geometry.hidden * geometry.num_layers > WHOLE_MODEL_BYTES


