"""Agreements over a real group of two processes: one rank refuses, both raise, nobody waits."""

from __future__ import annotations

import multiprocessing
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest
import torch.distributed

from kimi_k3_specdec.runtime.guards import CACHES, WEIGHTS, agree, attempt, weight_reasons
from kimi_k3_specdec.runtime.peer import tp_agree

RANKS = 2
SECONDS = 120
WHAT = "Kimi-K3 specialized decode does not support"
HOW = "(decode_backend=auto runs vLLM's decode)"


def votes(rank: int, store: str, answers: SimpleQueue) -> None:
    """One rank: it agrees, refuses alone, lets the other refuse, and agrees again."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    group = torch.distributed.new_group(backend="gloo")
    said = [tp_agree(True, group), tp_agree(rank == 0, group), tp_agree(False, group)]
    for reasons, what in (([], WEIGHTS), (["a", "b"] if rank == 1 else [], WEIGHTS), (["c"], CACHES), ([], CACHES)):
        try:
            agree(reasons, group, what)
            said.append("agreed")
        except ValueError as error:
            said.append(str(error))
    try:
        agree(attempt(lambda: weight_reasons(object()) if rank == 0 else []), group, WEIGHTS)
    except ValueError as error:
        said.append(str(error))
    answers.put((rank, said))
    torch.distributed.destroy_process_group()


def test_one_rank_refuses_and_both_raise(tmp_path: Path) -> None:
    """The texts of spec/runtime.md §4.5; a later agreement is not held up by an earlier refusal."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    ranks = [context.Process(target=votes, args=(rank, str(tmp_path / "store"), answers)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    hung = [process for process in ranks if process.is_alive()]
    for process in hung:
        process.kill()
    assert not hung and [process.exitcode for process in ranks] == [0] * RANKS
    said = dict(answers.get() for _ in ranks)
    own = f"{WHAT} the loaded weights: a; b {HOW}"
    other = f"{WHAT} the loaded weights: another TP rank refused {HOW}"
    both = f"{WHAT} the KV caches: c {HOW}"
    broken = f"{WHAT} the loaded weights: AttributeError: 'object' object has no attribute 'config' {HOW}"
    assert said[0] == [True, False, False, "agreed", other, both, "agreed", broken]
    assert said[1] == [True, False, False, "agreed", own, both, "agreed", other]


def test_a_single_process_agrees_with_itself() -> None:
    """Without a group."""
    assert tp_agree(True, None) is True and tp_agree(False, None) is False
    agree([], None, WEIGHTS)
    with pytest.raises(ValueError, match=r"does not support the KV caches: a; b \(decode_backend=auto"):
        agree(["a", "b"], None, CACHES)
