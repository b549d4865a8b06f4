"""What happens to a rank's process: picklable, called at the start of every step with the session and its number."""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

from kimi_k3_specdec.decoding.worker import RankSession
from kimi_k3_specdec.reference.state import Stream, VerifyStep

TICKS_PER_SECOND = 100_000_000
PAIR_REGIONS = ("attention_out", "logits", "latent", "latent_out", "output")


@dataclass(frozen=True)
class Injection:
    """Something that happens at the start of one step, once."""

    step: int

    def __call__(self, session: RankSession, step: int) -> None:
        """Called by the worker."""
        session.decode.runner.engine.clear_tap()
        if step == self.step:
            self.happen(session)

    def happen(self, session: RankSession) -> None:
        """What it is."""
        raise NotImplementedError


@dataclass(frozen=True)
class Nothing(Injection):
    """No fault."""

    def happen(self, session: RankSession) -> None:
        """It is a rank like any other."""


@dataclass(frozen=True)
class Stall(Injection):
    """A wave stands still before an instruction."""

    seconds: float
    op: str = "s_barrier"
    occurrence: int = 40

    def happen(self, session: RankSession) -> None:
        """In virtual time."""
        engine = session.decode.runner.engine
        engine.stall(session.rank, self.op, self.occurrence, int(self.seconds * TICKS_PER_SECOND))


@dataclass(frozen=True)
class Signal(Injection):
    """The process gets a signal, in the middle of a launch if the delay is right."""

    number: int = signal.SIGKILL
    delay: float = 0.03

    def happen(self, session: RankSession) -> None:
        """From a thread, while the main one is in the emulator."""
        threading.Timer(self.delay, os.kill, (os.getpid(), self.number)).start()


@dataclass(frozen=True)
class LoseCopy(Injection):
    """The step's metadata, and with it the step's number, does not reach the device."""

    def happen(self, session: RankSession) -> None:
        """The next copy of the host is the step's number: the groups have not moved."""
        session.decode.runner.engine.lose_copy(session.rank, 0)


@dataclass(frozen=True)
class LoseStore(Injection):
    """One pair that this rank stores never arrives, or arrives when so many launches have ended."""

    region: str = "latent_out"
    owner: int = 0
    occurrence: int = 100
    launches: int = 0

    def happen(self, session: RankSession) -> None:
        """`launches` 0: never."""
        engine = session.decode.runner.engine
        if self.launches:
            engine.delay_store(session.rank, self.region, self.owner, self.occurrence, self.launches)
        else:
            engine.drop_store(session.rank, self.region, self.owner, self.occurrence)


@dataclass(frozen=True)
class CorruptTag(Injection):
    """A bit of the tag of one pair flips on its way to another rank."""

    region: str = "output"
    owner: int = 0
    occurrence: int = 77
    bit: int = 9

    def happen(self, session: RankSession) -> None:
        """Above the payload's 32 bits."""
        engine = session.decode.runner.engine
        engine.corrupt_store(session.rank, self.region, self.owner, self.occurrence, 1 << 32 + self.bit)


@dataclass(frozen=True)
class Rebind(Injection):
    """vLLM's caches move and nobody says so."""

    def happen(self, session: RankSession) -> None:
        """The same states somewhere else."""
        for layer in session.decode.kinds:
            attention = session.backbone.layers[layer].self_attn
            if hasattr(attention, "kv_cache"):
                attention.kv_cache = tuple(state.clone() for state in attention.kv_cache)


@dataclass(frozen=True)
class Stock(Injection):
    """This rank runs vLLM's own layers in a step that the others launch."""

    def happen(self, session: RankSession) -> None:
        """As if its batch had been another."""
        session._context.cudagraph_runtime_mode = SimpleNamespace(name="PIECEWISE")


@dataclass(frozen=True)
class Narrow(Injection):
    """This rank sees one request less than the others."""

    def happen(self, session: RankSession) -> None:
        """Its last request is left out of the layers, and decodes nothing."""
        layers, q, requests = session._layers, session.options.rows_per_request, session.options.requests - 1
        metadata = session.metadata

        def fewer() -> dict[str, SimpleNamespace]:
            found = metadata()
            for own in found.values():
                own.num_spec_decodes = requests
                own.spec_state_indices_tensor = own.spec_state_indices_tensor[:requests]
                own.num_accepted_tokens = own.num_accepted_tokens[:requests]
            return found

        def narrow(step: int, stream: Stream, verify: VerifyStep) -> None:
            rows = requests * q
            part = Stream(stream.prefix[:rows].clone(), stream.blocks[:rows].clone(), None)
            own = VerifyStep({layer: slots[:requests] for layer, slots in verify.state_indices.items()},
                             verify.num_accepted[:requests], verify.token_slots[:requests])
            layers(step, part, own)
            stream.prefix[:rows], stream.blocks[:rows] = part.prefix, part.blocks
            stream.delta = torch.zeros_like(stream.prefix)
            stream.delta[:rows] = part.delta

        session.metadata, session._layers = fewer, narrow  # type: ignore[method-assign]


def drawn(seed: int, steps: int, ranks: int) -> tuple[int, Injection, bool]:
    """A rank, what happens to it, and whether everything must go on as if nothing had."""
    rng = random.Random(f"injection {seed}")
    rank, is_harmless = rng.randrange(ranks), seed % 10 == 0
    # A third strikes behind the first token.
    step = rng.randrange(1, steps) if seed % 3 == 0 else rng.randrange(steps)
    owner, occurrence = rng.randrange(ranks), rng.randrange(300)
    region = rng.choice(PAIR_REGIONS)
    if is_harmless:
        # Far below the time-out.
        return rank, rng.choice((Nothing(step), Stall(step, 0.2, occurrence=occurrence))), True
    kind = rng.choice((
        Stall(step, 30.0, rng.choice(("s_barrier", "global_store_dwordx2", "v_mfma_f32_16x16x32_bf16")), occurrence),
        Signal(step, signal.SIGKILL, rng.random() * 0.3),
        Signal(step, signal.SIGTERM, rng.random() * 0.3),
        LoseCopy(step),
        LoseStore(step, region, owner, occurrence),
        LoseStore(step, region, owner, occurrence, launches=rng.randrange(3, 9)),
        CorruptTag(step, region, owner, occurrence, rng.randrange(32)),
        Stock(step),
    ))
    return rank, replace(kind), False
