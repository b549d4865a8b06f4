"""Who may keep a kernel waiting for ever, watched beside it: this process told to end, a peer's process gone.

Every wait in the kernels polls an abort word (spec/runtime.md §8.2); a thread here sets it. Linux only, as HIP is.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterable, Mapping

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Those that end a worker of vLLM."""


class Watcher:
    """A thread that calls `abort` once, as soon as one of SIGNALS arrives or one of `peers` ends.

    The main thread may be inside a kernel then, where Python runs no signal handler: the signal is seen by the byte
    that the interpreter's C handler writes. That works where a Python handler is set, as vLLM's workers do; without one
    the process ends at once, and its peers see that.
    """

    def __init__(self, abort: Callable[[], None], peers: Mapping[int, int]) -> None:
        """`peers`: process ids by rank, without this process. Raises ProcessLookupError if one has ended."""
        self._abort = abort
        self._lost: dict[int, int] = {}
        self._signal: int | None = None
        self._descriptors: dict[int, tuple[int, int]] = {}
        self._signals, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._previous: int | None = None
        try:
            for rank, pid in peers.items():
                self._descriptors[os.pidfd_open(pid)] = (rank, pid)
        except OSError:
            self._close(self._descriptors)
            raise
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="specdec-watcher", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> dict[int, int]:
        """Process ids of peers that have ended, by rank."""
        return dict(self._lost)

    @property
    def signal_name(self) -> str | None:
        """The signal that told this process to end."""
        return None if self._signal is None else signal.Signals(self._signal).name

    def close(self) -> None:
        """Ends the thread; the handler of signals is as it was."""
        if self._thread.is_alive():
            if self._previous is not None:
                signal.set_wakeup_fd(self._previous)
            os.write(self._write, b"\0")
            self._thread.join()
            self._close([*self._descriptors, self._signals, self._write])

    @staticmethod
    def _close(descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    def _watch(self) -> None:
        poll = select.poll()
        for descriptor in (self._signals, *self._descriptors):
            poll.register(descriptor, select.POLLIN)
        has_aborted = False
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._signals:
                    numbers = os.read(descriptor, 64)
                    if 0 in numbers:
                        return
                    self._forward(numbers)
                    if not any(number in SIGNALS for number in numbers):
                        continue
                    self._signal = next(number for number in numbers if number in SIGNALS)
                else:
                    rank, pid = self._descriptors[descriptor]
                    self._lost[rank] = pid
                    poll.unregister(descriptor)
                if not has_aborted:
                    has_aborted = True
                    self._abort()

    def _forward(self, numbers: bytes) -> None:
        """To whoever was told of signals before."""
        if self._previous is not None and self._previous >= 0:
            os.write(self._previous, numbers)
