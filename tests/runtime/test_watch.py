"""A kernel's waits are ended by a signal, or by a peer's death, while the main thread cannot run Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kimi_k3_specdec.runtime.watch import Watcher

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper():
    """A process that does nothing."""
    process = subprocess.Popen(SLEEPER)
    yield process
    process.kill()
    process.wait()


def test_a_dead_peer_aborts_once_and_is_named(sleeper: subprocess.Popen[bytes]) -> None:
    """SIGKILL leaves it no chance to say anything."""
    aborted = threading.Event()
    watcher = Watcher(aborted.set, {3: sleeper.pid})
    assert not aborted.wait(0.1) and watcher.lost == {}
    sleeper.kill()
    assert aborted.wait(10)
    assert watcher.lost == {3: sleeper.pid} and watcher.signal_name is None
    watcher.close()


def test_a_peer_that_is_gone_already_is_an_error(sleeper: subprocess.Popen[bytes]) -> None:
    """Its process id means nothing any more."""
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(ProcessLookupError):
        Watcher(lambda: None, {1: sleeper.pid})


def test_a_signal_aborts_while_the_main_thread_is_busy_elsewhere() -> None:
    """As in a kernel: no Python handler runs until the call ends, which only the abort can bring about."""
    code = """
import os, signal, sys, threading, time
from kimi_k3_specdec.runtime.watch import Watcher
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
aborted = threading.Event()
watcher = Watcher(aborted.set, {})
read, write = os.pipe()
threading.Thread(target=lambda: (aborted.wait(), os.write(write, b"1")), daemon=True).start()
print("ready", flush=True)
while True:
    try:
        os.read(read, 1)
        break
    except InterruptedError:
        continue
print(watcher.signal_name, bool(ended), flush=True)
watcher.close()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "SIGTERM True\n"
    assert process.wait(10) == 0


def test_others_still_hear_of_their_signals() -> None:
    """The descriptor that was told of signals before is told of them all, and is back afterwards."""
    read, write = os.pipe2(os.O_NONBLOCK)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    aborted = threading.Event()
    try:
        watcher = Watcher(aborted.set, {})
        os.kill(os.getpid(), signal.SIGUSR1)
        deadline = time.monotonic() + 10
        seen = b""
        while not seen and time.monotonic() < deadline:
            try:
                seen = os.read(read, 8)
            except BlockingIOError:
                time.sleep(0.01)
        assert seen == bytes([signal.SIGUSR1]) and not aborted.is_set()
        watcher.close()
        assert signal.set_wakeup_fd(write) == write
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGUSR1, handler)
        os.close(read)
        os.close(write)
