"""Ranks as processes: they decode as one process does, and when one of them fails all of them end, with a reason."""

from __future__ import annotations

import json
import re
import signal

import pytest
from typer.testing import CliRunner

from kimi_k3_specdec.cli import application
from kimi_k3_specdec.decoding.prepared import Prepared
from kimi_k3_specdec.decoding.processes import Ended

from . import injections
from .conftest import Started

MOST_SECONDS = 5.0
"""From the first end of a rank to the last one: vLLM kills what is left then."""


def right_tokens(ended: Ended, prepared: Prepared) -> int:
    """Steps whose tokens were handed out; all of them are those of the reference."""
    for request, tokens in enumerate(ended.tokens):
        truth = prepared.parts[request][0].tokens[: len(tokens)].tolist()
        assert tokens == truth, f"request {request}"
    return ended.steps


def stopped(ended: Ended, prepared: Prepared, step: int, *, survivors: tuple[int, ...]) -> list[str]:
    """The sentences of the ranks that could say something; no token of the failed step, or of one behind it, is out."""
    assert right_tokens(ended, prepared) <= step
    sentences = []
    for rank in survivors:
        said = ended.ranks[rank].last("stopped")
        assert said is not None and ended.ranks[rank].exit_code == 1, (rank, ended.ranks[rank])
        assert ended.ranks[rank].last("done") is None and said["hint"]
        sentences.append(said["sentence"])
    ends = [end.ended_at for end in ended.ranks]
    assert max(ends) - min(ends) < MOST_SECONDS
    return sentences


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_as_processes_decode_as_one_process_does(ranks: int) -> None:
    """The same tokens, and the same states bit for bit on every rank."""
    words = ["run", "--json", "--ranks", str(ranks), "--steps", "3"]
    reports = [json.loads(CliRunner().invoke(application(), words + more).stdout) for more in ([], ["--processes"])]
    for name in ("tokens", "reference_tokens", "acceptance", "rank_states_sha256", "launches_per_step"):
        assert reports[0][name] == reports[1][name], name
    assert reports[1]["equal"] and len(set(reports[1]["rank_states_sha256"])) == ranks


@pytest.mark.parametrize("start_epoch", [2**24 - 3, 2**32 - 3])
def test_step_numbers_and_tags_wrap(start_epoch: int, ranks_as_processes: Started) -> None:
    """Three steps before the wrap of the tags, and of the number itself: nobody notices."""
    ended, prepared = ranks_as_processes(steps=8, start_epoch=start_epoch)
    assert [end.exit_code for end in ended.ranks] == [0, 0], ended
    assert right_tokens(ended, prepared) == 8


@pytest.mark.parametrize(("seconds", "survivors"), [(4.0, (0, 1)), (60.0, (0,))])
def test_a_stalled_wave_stops_all_ranks_and_is_named(seconds: float, survivors: tuple[int, ...],
                                                     ranks_as_processes: Started) -> None:
    """Where, for what and for whom the others waited, and where the culprit was last seen; one that never comes back is
    not waited for. There, what else of it runs may give up before the others do.
    """
    ended, prepared = ranks_as_processes({1: injections.Stall(2, seconds)})
    how = r"is stuck or late: .*rank.* waited 3\.0 s"
    if len(survivors) == 1:
        how = rf"({how}|gave up and hangs: rank 0 waited)"
    for sentence in stopped(ended, prepared, 2, survivors=survivors):
        assert re.search(rf"rank 1 {how} for its .*, at layer \d+, stage \w+ of step 10, where it was (never|last) "
                         "seen", sentence), sentence
        assert sentence.endswith("stopping the engine (decode_backend=auto runs vLLM's decode)")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_all_others(rank: int, ranks_as_processes: Started) -> None:
    """SIGKILL in the middle of a step: no word of it, and the others do not wait for a time-out."""
    ended, prepared = ranks_as_processes({rank: injections.Signal(1)})
    assert ended.ranks[rank].exit_code == -signal.SIGKILL
    sentence, = stopped(ended, prepared, 1, survivors=(1 - rank,))
    assert f"the process of rank {rank} ended" in sentence


def test_a_process_that_is_told_to_end_ends_at_once(ranks_as_processes: Started) -> None:
    """SIGTERM: its own waits give up, and so do the others'."""
    ended, prepared = ranks_as_processes({1: injections.Signal(1, signal.SIGTERM)})
    assert ended.ranks[1].exit_code in (1, 128 + signal.SIGTERM)
    sentence, = stopped(ended, prepared, 1, survivors=(0,))
    assert "rank 1" in sentence or "give up" in sentence, sentence


def test_stale_metadata_is_found_before_anything_is_written(ranks_as_processes: Started) -> None:
    """The copy of one step does not reach the device."""
    ended, prepared = ranks_as_processes({1: injections.LoseCopy(2)})
    # Eight steps of the start-up test come first.
    for sentence in stopped(ended, prepared, 2, survivors=(0, 1)):
        assert "rank 1 ran step 10 on the metadata of step 9" in sentence


@pytest.mark.parametrize("launches", [0, 6])
def test_a_store_that_a_wait_needs_is_missed(launches: int, ranks_as_processes: Started) -> None:
    """Never stored, and stored two steps later: three launches are a step. On a busy machine the other rank's records
    may come too late to tell where it was.
    """
    ended, prepared = ranks_as_processes({1: injections.LoseStore(1, launches=launches)})
    for sentence in stopped(ended, prepared, 1, survivors=(0, 1)):
        assert re.search(r"rank 1 or the link from it is stuck: rank.* waited 3\.0 s for its latent_out of stage "
                         r"expert_down, row \d, columns \d+ to \d+, at layer 1, stage latent_norm of step 9, where it "
                         r"was (last|never) seen", sentence), sentence


def test_a_rank_with_another_width_stops_all(ranks_as_processes: Started) -> None:
    """It stores fewer rows than the others wait for."""
    ended, prepared = ranks_as_processes({1: injections.Narrow(1)})
    for sentence in stopped(ended, prepared, 1, survivors=(0, 1)):
        assert "rank 1" in sentence or "rows" in sentence, sentence


def test_a_rank_that_runs_stock_layers_stops_all(ranks_as_processes: Started) -> None:
    """The others wait in vain, by the clock on the wall."""
    ended, prepared = ranks_as_processes({1: injections.Stock(1)}, timeout_seconds=1.0)
    for sentence in stopped(ended, prepared, 1, survivors=(0,)):
        assert "rank 1" in sentence, sentence


def test_caches_that_moved_stop_all(ranks_as_processes: Started) -> None:
    """One rank raises, in vLLM's words; the other sees it go."""
    ended, prepared = ranks_as_processes({1: injections.Rebind(2)}, timeout_seconds=1.0)
    sentences = stopped(ended, prepared, 2, survivors=(0, 1))
    assert "the KV cache was re-bound without prepare_kv" in sentences[1]
    assert "rank 1" in sentences[0], sentences[0]


def random_fault(seed: int, ranks_as_processes: Started) -> None:
    """No hang, no wrong token, and no success where something was needed that did not come."""
    steps, ranks = 4, 2
    rank, injection, is_harmless = injections.drawn(seed, steps, ranks)
    ended, prepared = ranks_as_processes({rank: injection}, steps=steps, timeout_seconds=1.0)
    handed_out = right_tokens(ended, prepared)
    codes = [end.exit_code for end in ended.ranks]
    if is_harmless:
        assert codes == [0] * ranks and handed_out == steps, (rank, injection, ended)
    elif codes != [0] * ranks and handed_out < steps:
        # All stop together. (A fault may strike where nothing was left to strike, or behind the last token.)
        assert 0 not in codes, (rank, injection, ended)
        # A lost store strikes where it is waited for, a signal when the clock on the wall says so.
        has_step = not isinstance(injection, (injections.LoseStore, injections.Signal))
        assert not has_step or handed_out <= injection.step + 1, (rank, injection)


@pytest.mark.parametrize("seed", range(8))
def test_random_faults(seed: int, ranks_as_processes: Started) -> None:
    """The first eight of two hundred."""
    random_fault(seed, ranks_as_processes)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", range(8, 200, 12))
def test_two_hundred_random_faults(seeds: int, ranks_as_processes: Started) -> None:
    """A third strike behind the first token, a tenth are harmless."""
    for seed in range(seeds, seeds + 12):
        random_fault(seed, ranks_as_processes)
