"""Our counters in vLLM's `/metrics`. The steps run in workers, `/metrics` is answered elsewhere.

Where vLLM has set up prometheus_client for several processes, the workers' own metrics reach it. Otherwise each rank
writes its numbers to a file, and a collector in the answering process reads them when it is asked.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "KIMI_K3_SPECDEC_METRICS"
"""Where the processes of one server find the folder of the files; set by the first of them."""

MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
PERIOD_SECONDS = 0.5
"""Between two writes, by a thread beside the steps."""

PREFIX = "kimi_k3_specdec_"
COUNTERS = {
    "specialized_steps": ("Decode steps that ran in the persistent kernels, by rows.", "rows"),
    "stock_steps": ("Steps that ran vLLM's layers, by reason.", "reason"),
    "padded_rows": ("Rows of specialized steps that no request needed.", None),
}
"""Name -> help and label of the counters, which rank 0 tells for all: they are the same everywhere."""

GAUGES = {
    "epoch": "Number of the last specialized step of each rank; they must not drift apart.",
    "failed_waits": "Waits of a rank's kernels that ended by time-out; the engine has stopped, or is about to.",
}
"""Name -> help of what each rank tells of itself, labelled with it."""


NO_COUNTERS: dict[str, Any] = {"specialized": {}, "stock": {}, "padded_rows": 0}
"""Before the first step."""


def samples(counters: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Counters of the executor as name -> label value -> count; the empty label where there is none."""
    return {
        "specialized_steps": {str(rows): count for rows, count in counters["specialized"].items()},
        "stock_steps": dict(counters["stock"]),
        "padded_rows": {"": counters["padded_rows"]},
    }


def serve() -> None:
    """Prepares this process, and those that it starts, for answering `/metrics`. Makes nothing that shows until a rank
    publishes.
    """
    if MULTIPROCESS_VARIABLE in os.environ or FOLDER_VARIABLE in os.environ:
        return
    from prometheus_client import REGISTRY

    folder = Path(tempfile.gettempdir()) / f"kimi-k3-specdec-{os.getpid()}-{secrets.token_hex(4)}"
    os.environ[FOLDER_VARIABLE] = str(folder)
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    REGISTRY.register(FolderCollector(folder))


class FolderCollector:
    """What the ranks have written, when asked."""

    def __init__(self, folder: Path) -> None:
        """`folder` may come later, or never."""
        self._folder = folder

    def describe(self) -> list[Any]:
        """Nothing in advance: with another model there is nothing."""
        return []

    def collect(self) -> Iterable[Any]:
        """Every metric that has a value."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        ranks = {int(file.stem): json.loads(file.read_text()) for file in sorted(self._folder.glob("*.json"))}
        if 0 in ranks:
            for name, (text, label) in COUNTERS.items():
                family = CounterMetricFamily(PREFIX + name, text, labels=[label] if label else [])
                for value, count in ranks[0]["counters"][name].items():
                    family.add_metric([value] if label else [], count)
                yield family
        for name, text in GAUGES.items() if ranks else ():
            family = GaugeMetricFamily(PREFIX + name, text, labels=["rank"])
            for rank, told in ranks.items():
                family.add_metric([str(rank)], told["gauges"][name])
            yield family


class Publisher:
    """One rank's side."""

    def __init__(self, rank: int) -> None:
        """Through prometheus_client's own files where vLLM uses those, through ours otherwise."""
        self._rank, self._told, self._written = rank, None, None
        self._native = _NativeMetrics(rank) if MULTIPROCESS_VARIABLE in os.environ else None
        folder = os.environ.get(FOLDER_VARIABLE)
        self._folder = Path(folder) if folder and self._native is None else None
        self._is_over = threading.Event()
        atexit.register(self.close)
        threading.Thread(target=self._write_on, name="kimi-k3-specdec metrics", daemon=True).start()

    def publish(self, counters: dict[str, Any], epoch: int) -> None:
        """After a step; costs it next to nothing."""
        self._told = counters, {"epoch": epoch, "failed_waits": 0}

    def stop(self, failed_waits: int) -> None:
        """The engine stops: what is known now is written at once."""
        counters, gauges = self._told or (NO_COUNTERS, {"epoch": 0})
        self._told = counters, gauges | {"failed_waits": failed_waits}
        self.flush()

    def _write_on(self) -> None:
        while not self._is_over.wait(PERIOD_SECONDS):
            self.flush()

    def close(self) -> None:
        """Writes what is left."""
        self._is_over.set()
        self.flush()

    def flush(self) -> None:
        """Writes what was published last. Metrics that cannot be written do not stop an engine."""
        told = self._told
        if told is None or told is self._written:
            return
        self._written = told
        counters, gauges = told
        text = {"counters": samples(counters), "gauges": gauges}
        if self._native is not None:
            self._native.tell(text)
        elif self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.mkdir(mode=0o700, exist_ok=True)
                partial = self._folder / f"{self._rank}.partial"
                partial.write_text(json.dumps(text))
                partial.replace(self._folder / f"{self._rank}.json")


class _NativeMetrics:
    """prometheus_client's own metrics, which its files carry to the process that answers."""

    def __init__(self, rank: int) -> None:
        from prometheus_client import Counter, Gauge

        self._rank = rank
        self._counters = {} if rank else {
            name: Counter(PREFIX + name, text, [label] if label else []) for name, (text, label) in COUNTERS.items()}
        self._gauges = {name: Gauge(PREFIX + name, text, ["rank"], multiprocess_mode="livemax")
                        for name, text in GAUGES.items()}
        self._seen: dict[tuple[str, str], int] = {}

    def tell(self, told: dict[str, Any]) -> None:
        """Adds what has come since."""
        for name, counter in self._counters.items():
            for value, count in told["counters"][name].items():
                child = counter.labels(value) if COUNTERS[name][1] else counter
                child.inc(count - self._seen.get((name, value), 0))
                self._seen[name, value] = count
        for name, gauge in self._gauges.items():
            gauge.labels(str(self._rank)).set(told["gauges"][name])
