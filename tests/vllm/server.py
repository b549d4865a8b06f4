"""`vllm serve` on the rig, asked over HTTP."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import engine
import environment

from mi355x.serving import Server as AnyServer
from mi355x.serving import free_port


class Server(AnyServer):
    """One of the rig, with a folder of its own."""

    start_seconds, stop_seconds = 240, 60

    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        """Starts it; its case lies in `folder` for `ask.py`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "case.json").write_text(json.dumps(case))
        self.folder, port = folder, free_port()
        command = [str(environment.python()), "-m", "vllm.entrypoints.cli.main", *arguments(case, port)]
        variables = engine.variables(folder, case | {"processes": True}, with_ours=True)
        super().__init__(command, port, folder / "log", variables)

    def ask_case(self) -> list[dict[str, Any]]:
        """Every prompt of its case at once, by OpenAI's client: `seen`, and `error` if one ended the stream."""
        answer = self.folder / "asked.json"
        command = [environment.python(), engine.HERE / "ask.py", self.port, self.folder / "case.json", answer]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)
        assert answer.exists(), done.stderr + self.log[-6000:]
        return json.loads(answer.read_text())


def arguments(case: dict[str, Any], port: int) -> list[str]:
    """The command line of the case."""
    speculation = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    return [
        "serve", case["model"], "--served-model-name", "nano", "--host", "127.0.0.1", "--port", str(port),
        "--tensor-parallel-size", str(case.get("ranks", 1)), "--skip-tokenizer-init", "--max-model-len", "128",
        "--max-num-seqs", "2", "--enforce-eager", "--dtype", "bfloat16", "--kv-cache-memory-bytes", str(64 << 20),
        "--attention-backend", "CPU_MLA", "--no-enable-prefix-caching", "--speculative-config", json.dumps(speculation),
        "--additional-config", json.dumps(case.get("additional_config", {}))]
