"""Counters on their way from a worker to `/metrics`, by both ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, multiprocess

from kimi_k3_specdec.vllm_plugin import metrics

COUNTERS = {"specialized": {8: 5, 4: 2}, "stock": {"no metadata": 1}, "padded_rows": 3}
SHOWN = (
    'kimi_k3_specdec_specialized_steps_total{rows="8"} 5.0',
    'kimi_k3_specdec_specialized_steps_total{rows="4"} 2.0',
    'kimi_k3_specdec_stock_steps_total{reason="no metadata"} 1.0',
    "kimi_k3_specdec_padded_rows_total 3.0",
    'kimi_k3_specdec_epoch{rank="0"} 7.0',
    'kimi_k3_specdec_epoch{rank="1"} 6.0',
    'kimi_k3_specdec_failed_waits{rank="0"} 0.0',
    'kimi_k3_specdec_failed_waits{rank="1"} 0.0',
)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    """A process of a server without ranks so far."""
    monkeypatch.delenv(metrics.MULTIPROCESS_VARIABLE, raising=False)
    monkeypatch.setenv(metrics.FOLDER_VARIABLE, str(tmp_path / "ranks"))
    made = CollectorRegistry()
    made.register(metrics.FolderCollector(tmp_path / "ranks"))
    return made


def test_nothing_shows_before_a_rank_publishes(registry: CollectorRegistry, tmp_path: Path) -> None:
    """With another model there is no metric of ours, and no file."""
    assert generate_latest(registry) == b""
    metrics.Publisher(0).close()
    assert not list(tmp_path.iterdir())


def test_counters_of_all_ranks_show(registry: CollectorRegistry) -> None:
    """The counts of rank 0, the step number of each."""
    for rank, epoch in ((0, 7), (1, 6)):
        publisher = metrics.Publisher(rank)
        publisher.publish(COUNTERS, epoch - 1)
        publisher.publish(COUNTERS, epoch)
        publisher.close()
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == list(SHOWN)


def test_failed_waits_show_at_once(registry: CollectorRegistry) -> None:
    """With what was known before, or behind no step at all."""
    for rank in (0, 1):
        publisher = metrics.Publisher(rank)
        if rank == 0:
            publisher.publish(COUNTERS, 7)
        publisher.stop(3 + rank)
    shown = generate_latest(registry).decode()
    assert 'failed_waits{rank="0"} 3.0' in shown and 'failed_waits{rank="1"} 4.0' in shown
    assert 'rows="8"} 5.0' in shown and 'epoch{rank="0"} 7.0' in shown


def test_a_publisher_writes_by_itself(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is followed by none shows too."""
    monkeypatch.setattr(metrics, "PERIOD_SECONDS", 0.01)
    publisher = metrics.Publisher(0)
    publisher.publish(COUNTERS, 7)
    for _ in range(500):
        if generate_latest(registry):
            break
        publisher._is_over.wait(0.01)
    assert b"padded_rows_total 3.0" in generate_latest(registry)
    publisher.close()


def test_a_folder_that_cannot_be_made_stops_nothing(registry: CollectorRegistry, tmp_path: Path) -> None:
    """An engine goes on without metrics."""
    (tmp_path / "ranks").write_text("a file")
    publisher = metrics.Publisher(0)
    publisher.publish(COUNTERS, 7)
    publisher.close()


def test_several_front_ends_read_prometheus_clients_own_files(tmp_path: Path) -> None:
    """Where vLLM has set up its multi-process mode, a worker's counters are in its registry."""
    worker = (
        "from kimi_k3_specdec.vllm_plugin import metrics\n"
        f"publisher = metrics.Publisher(0)\npublisher.publish({ {**COUNTERS, 'padded_rows': 1}!r}, 6)\n"
        f"publisher.flush()\npublisher.publish({COUNTERS!r}, 7)\npublisher.close()\n")
    environment = os.environ | {metrics.MULTIPROCESS_VARIABLE: str(tmp_path)}
    subprocess.run([sys.executable, "-c", worker], env=environment, check=True)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=str(tmp_path))
    shown = generate_latest(registry).decode()
    for line in SHOWN[:4]:
        assert line in shown
