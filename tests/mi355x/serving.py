"""`vllm serve` on eight GPUs: started, asked, measured, and one of its ranks stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

OURS, STOCK = "latency_specialized", "auto"
PREFIX = "kimi_k3_specdec_"


@dataclass(frozen=True)
class Deployment:
    """One way to serve a model; `drafter` is vLLM's speculative configuration without the number of tokens."""

    model: str
    backend: str
    requests: int
    tokens: int
    drafter: dict[str, Any]

    @property
    def rows(self) -> int:
        """Of a full verify step."""
        return self.requests * (self.tokens + 1)

    def command(self, port: int) -> list[str]:
        """The server's."""
        speculation = self.drafter | {"num_speculative_tokens": self.tokens}
        return [
            sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", self.model, "--served-model-name", "k3",
            "--host", "127.0.0.1", "--port", str(port), "--tensor-parallel-size", "8",
            "--decode-context-parallel-size", "8", "--max-num-seqs", str(self.requests),
            "--speculative-config", json.dumps(speculation),
            "--compilation-config", json.dumps({"cudagraph_mode": "FULL_AND_PIECEWISE"}),
            "--additional-config", json.dumps({"decode_backend": self.backend})]


@dataclass(frozen=True)
class Answer:
    """One completion: its tokens, seconds from the first to the last of them, and the error that ended it."""

    tokens: list[int]
    seconds: float
    error: str | None = None


class Server:
    """A front end, started, and its processes."""

    start_seconds, stop_seconds = 3600, 120

    def __init__(self, command: list[str], port: int, log: Path, variables: dict[str, str] | None = None) -> None:
        """`command` serves on `port`; `variables`: its environment, None: this one's."""
        self.port, self._log = port, log
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, env=variables, stdout=file, stderr=subprocess.STDOUT)

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """From its first answer on; it ends with the block. Raises AssertionError with the log where none comes."""
        try:
            self.wait_until_ready()
            yield self
        finally:
            self.process.terminate()
            self.process.wait(self.stop_seconds)

    @property
    def log(self) -> str:
        """Of all of its processes."""
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> str:
        """A page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def ask(self, prompts: list[str], tokens: int) -> list[Answer]:
        """All at once, greedy, as streams."""
        answers: list[Answer | None] = [None] * len(prompts)

        def one(index: int) -> None:
            answers[index] = completion(f"http://127.0.0.1:{self.port}/v1/completions", prompts[index], tokens)

        threads = [threading.Thread(target=one, args=(index,)) for index in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [answer for answer in answers if answer is not None]

    def wait_until_ready(self) -> None:
        """Raises AssertionError with the log where it does not come up."""
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                self.get("/health")
                return
            time.sleep(0.5)
        raise AssertionError(self.log[-6000:])


def completion(url: str, prompt: str, tokens: int) -> Answer:
    """One streamed completion."""
    body = {"model": "k3", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True,
            "return_token_ids": True}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    seen: list[int] = []
    began = ended = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=600) as stream:
            for line in stream:
                found, error = chunk(line)
                if error is not None:
                    return Answer(seen, ended - began, error)
                if found and not seen:
                    began = time.monotonic()
                seen += found
                ended = time.monotonic()
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        return Answer(seen, ended - began, f"{type(error).__name__}: {error}")
    return Answer(seen, ended - began)


def chunk(line: bytes) -> tuple[list[int], str | None]:
    """Tokens of a line of the stream, or the error in it."""
    text = line.decode().strip()
    if not text.startswith("data:") or text.endswith("[DONE]"):
        return [], None
    event = json.loads(text.removeprefix("data:"))
    if "error" in event:
        return [], event["error"].get("message", str(event["error"]))
    return [token for choice in event.get("choices", ()) for token in choice.get("token_ids") or ()], None


def ours(page: str) -> dict[str, dict[str, float]]:
    """Our metrics on a `/metrics` page: name -> label value -> number."""
    out: dict[str, dict[str, float]] = {}
    for line in page.splitlines():
        found = re.fullmatch(rf'{PREFIX}(\w+?)(?:_total)?(?:\{{\w+="(.*)"\}})? (\S+)', line)
        if found:
            out.setdefault(found[1], {})[found[2] or ""] = float(found[3])
    return out


def workers(parent: int) -> dict[int, int]:
    """Process ids of a server's ranks, by rank: its descendants that vLLM has named `VLLM::Worker_TPn`."""
    found, children = {}, [parent]
    while children:
        pid = children.pop()
        with contextlib.suppress(OSError):  # it may end meanwhile
            for task in Path(f"/proc/{pid}/task").iterdir():
                children += map(int, (task / "children").read_text().split())
            name = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if rank := re.match(r"VLLM::Worker_TP(\d+)", name):
                found[int(rank[1])] = pid
    return found


def stop_rank(parent: int, rank: int) -> int:
    """Stops a rank's process where it stands; returns its id."""
    pid = workers(parent)[rank]
    os.kill(pid, signal.SIGSTOP)
    return pid


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def table(rows: list[dict[str, Any]]) -> str:
    """Tokens a second by width, ours beside vLLM's."""
    lines = ["requests  drafts  rows  ours, tokens/s  auto, tokens/s  ratio"]
    lines += [f"{row['requests']:8}  {row['tokens']:6}  {row['rows']:4}  {row[OURS]:14.1f}  {row[STOCK]:14.1f}  "
              f"{row[OURS] / row[STOCK]:5.2f}" for row in rows]
    return "\n".join(lines)


def serving(deployment: Deployment, folder: Path) -> contextlib.AbstractContextManager[Server]:
    """A server of the deployment from its first answer on; it ends with the block."""
    log, port = folder / f"{deployment.backend}-{deployment.requests}-{deployment.tokens}.log", free_port()
    return Server(deployment.command(port), port, log).running()
