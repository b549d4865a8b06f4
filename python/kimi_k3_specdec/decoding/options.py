"""What one run does, as a plain value that also prints the command that repeats it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .. import _native
from ..errors import UserError

FAULT_KINDS = ("nibble", "scale", "conv-index", "k-step", "tag")
DEVICES = ("emulator", "fake-hip", "hip", "cuda")
"""`fake-hip` is the HIP driver over the emulator, for tests; it and `hip` keep no exchanges, so no stage is checked."""
CHECKS = ("races",)
SCHEDULES = ("turns", "priorities")
"""How the emulator's waves take turns."""
MEMORIES = ("strong", "weak")

MAX_COUNT, MAX_SEED = 2**16, 2**32 - 1
"""The largest count and seed that an option takes."""


@dataclass(frozen=True)
class FaultSpec:
    """One fault on one rank; `seed` decides where and when it strikes."""

    kind: str
    rank: int
    seed: int = 0

    @staticmethod
    def parse(text: str) -> FaultSpec:
        """`KIND@RANK[:SEED]`."""
        found = re.fullmatch(r"([a-z-]+)@(\d+)(?::(\d+))?", text)
        if not found or found[1] not in FAULT_KINDS:
            raise UserError(f"`{text}` is no fault", f"write KIND@RANK or KIND@RANK:SEED, KIND one of "
                                                   f"{', '.join(FAULT_KINDS)}")
        return FaultSpec(found[1], int(found[2]), int(found[3] or 0))

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.kind}@{self.rank}:{self.seed}"


@dataclass(frozen=True)
class RunOptions:
    """The options of `kimi-k3-specdec run`; everything that its result depends on."""

    geometry: str = "nano"
    ranks: int = 2
    requests: int = 2
    speculative_tokens: int = 3
    steps: int = 8
    layers: tuple[int, int] | None = None
    """First and last layer that the device runs; None: all that the kernels serve."""
    seed: int = 0
    schedule_seed: int = 0
    device: str = "emulator"
    checkpoint: Path | None = None
    """An existing checkpoint; None: a seeded one is made and thrown away."""
    fault: FaultSpec | None = None
    check: str | None = None
    """What is checked beside results: one of CHECKS."""
    schedule: str = "turns"
    memory: str = "strong"
    """Whether stores are seen at once (`strong`), or as little and late as the model allows (`weak`)."""
    schedules: int = 1
    """Schedules to explore, from `schedule_seed` on."""
    processes: bool = False
    """Whether every rank is a process of its own."""

    @property
    def rows_per_request(self) -> int:
        """The last token and its drafts."""
        return self.speculative_tokens + 1

    @property
    def rows(self) -> int:
        """Token rows of a step."""
        return self.requests * self.rows_per_request

    def check_ranges(self) -> None:
        """Raises UserError for a number that no run can have, before anything narrower sees it."""
        least = {"ranks": 1, "requests": 1, "speculative_tokens": 0, "steps": 1, "seed": 0, "schedule_seed": 0,
                 "schedules": 1}
        for name, low in least.items():
            value, high = getattr(self, name), MAX_SEED if name.endswith("seed") else MAX_COUNT
            if not low <= value <= high:
                option = f"--{name.replace('_', '-')}"
                raise UserError(f"{option} {value}: it must be {low} to {high}", f"choose {option} in that range")

    def command(self, *, steps: int | None = None, layers: tuple[int, int] | None = None) -> str:
        """The shell command that repeats this run, or its first `steps` steps, or with only `layers` on the device."""
        layers = layers or self.layers
        words = [
            "kimi-k3-specdec run", f"--geometry {self.geometry}", f"--ranks {self.ranks}",
            f"--requests {self.requests}", f"--speculative-tokens {self.speculative_tokens}",
            f"--steps {self.steps if steps is None else steps}", f"--seed {self.seed}",
            f"--schedule-seed {self.schedule_seed}",
        ]
        words += [f"--device {self.device}"] if self.device != "emulator" else []
        words += [f"--layers {layers[0]}-{layers[1]}"] if layers else []
        words += [f"--checkpoint {self.checkpoint}"] if self.checkpoint else []
        words += [f"--fault {self.fault}"] if self.fault else []
        words += [f"--check {self.check}"] if self.check else []
        words += [f"--schedule {self.schedule}"] if self.schedule != "turns" else []
        words += [f"--memory {self.memory}"] if self.memory != "strong" else []
        words += ["--processes"] if self.processes else []
        return " ".join(words)


def parse_layers(text: str | None) -> tuple[int, int] | None:
    """`A-B` or `A`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if not found or int(found[2] or found[1]) < int(found[1]):
        raise UserError(f"`{text}` is no range of layers", "write FIRST-LAST, such as 1-4")
    return int(found[1]), int(found[2] or found[1])


def check_served(options: RunOptions) -> None:
    """Everything that the options alone can get wrong. Raises UserError, or `Refused` with a hint."""
    if options.device == "cuda":
        raise UserError("device `cuda` cannot be used: this release has no driver for it",
                        "leave --device out, or say --device emulator")
    if options.device == "hip":
        # Says where it has looked, if there is none.
        _native.hip_devices()
    options.check_ranges()
    if options.device != "emulator":
        _check_emulator_only(options)
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


def _check_emulator_only(options: RunOptions) -> None:
    """Refuses what needs the emulator's own eyes."""
    for value, plain, name in ((options.check, None, "--check"), (options.memory, "strong", "--memory"),
                               (options.fault, None, "--fault"), (options.schedules, 1, "--schedules"),
                               (options.processes, False, "--processes")):
        if value != plain:
            raise UserError(f"{name} works in the emulator only, not on device `{options.device}`",
                            f"leave out {name}, or --device")


def _ranges(layers: list[int]) -> str:
    """`1-5, 7`."""
    out: list[list[int]] = []
    for layer in layers:
        if out and layer == out[-1][1] + 1:
            out[-1][1] = layer
        else:
            out.append([layer, layer])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in out)
