"""What the suite for the real machine is made of, over the fake HIP library, a small server and ordinary processes."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimi_k3_specdec.decoding import fake_hip

from . import serving
from .peers import exchange

ASK_FACTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from hip import hip
from mi355x.facts import devices, why_not
from mi355x.peers import hip_library
found = devices(hip)
print(json.dumps({"count": len(found), "first": vars(found[0]), "why_not": why_not(hip),
                  "library": str(hip_library())}))
"""
TESTS = Path(__file__).resolve().parent.parent


def facts(tmp_path: Path, **variables: str) -> dict:
    """What hip-python says where the fake library is ROCm's."""
    library = tmp_path / "lib" / "libamdhip64.so"
    library.parent.mkdir(exist_ok=True)
    shutil.copy(fake_hip.library(), library)
    done = subprocess.run([sys.executable, "-c", ASK_FACTS, str(TESTS)], capture_output=True, text=True, check=False,
                          env=os.environ | {"ROCM_PATH": str(tmp_path)} | variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_eight_whole_gpus_are_the_machine(tmp_path: Path) -> None:
    """AMD's own bindings read the library that our driver is tested against."""
    found = facts(tmp_path, FAKE_HIP_DEVICES="8")
    assert found["why_not"] == [] and found["count"] == 8
    assert (found["first"]["units"], found["first"]["lds_bytes"], found["first"]["wave"]) == (256, 163_840, 64)
    assert "gfx950" in found["first"]["name"] and found["first"]["pci"].count(":") == 2
    assert Path(found["library"]).samefile(tmp_path / "lib" / "libamdhip64.so"), "ours loads the same"


def test_two_are_none(tmp_path: Path) -> None:
    """The reason is what a skip says."""
    assert facts(tmp_path, FAKE_HIP_DEVICES="2")["why_not"] == ["2 devices (8 needed)"]


def test_ranks_exchange_over_the_fake_library() -> None:
    """The same function that eight GPUs run."""
    library = fake_hip.library()
    fake_hip.reset(library, 2, {})
    epochs = exchange("nano", 2, library)
    assert epochs[0] == epochs[1] > 0


class Completions(http.server.BaseHTTPRequestHandler):
    """Streams two tokens as vLLM does, then an error where the prompt asks for one."""

    def do_POST(self) -> None:  # noqa: D102  http.server's name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for token in (5, 7):
            event = {"choices": [{"token_ids": [token], "text": ""}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        end = json.dumps({"error": {"message": "rank 5 is stuck"}}) if body["prompt"] == "fail" else "[DONE]"
        self.wfile.write(f"data: {end}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """Its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Completions) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_address[1]}/v1/completions"
        made.shutdown()


def test_streams_are_read_to_their_end(server: str) -> None:
    """Tokens, and the error that ended one; a server that has gone is an error too."""
    assert serving.completion(server, "go", 2).tokens == [5, 7]
    failed = serving.completion(server, "fail", 2)
    assert (failed.tokens, failed.error) == ([5, 7], "rank 5 is stuck")
    assert serving.completion("http://127.0.0.1:9/v1/completions", "go", 2).error is not None


def test_our_metrics_are_found_on_a_page() -> None:
    """Counters without their suffix, by label value."""
    page = "\n".join([
        '# HELP kimi_k3_specdec_epoch x', 'kimi_k3_specdec_specialized_steps_total{rows="8"} 5.0',
        'kimi_k3_specdec_stock_steps_total{reason="not uniform: \\"x\\""} 2.0', 'kimi_k3_specdec_padded_rows_total 3.0',
        'kimi_k3_specdec_epoch{rank="1"} 7.0', 'vllm:num_requests_running{engine="0"} 1.0'])
    assert serving.ours(page) == {"specialized_steps": {"8": 5.0}, "stock_steps": {'not uniform: \\"x\\"': 2.0},
                                  "padded_rows": {"": 3.0}, "epoch": {"1": 7.0}}


def test_a_rank_is_found_below_its_server_and_stopped() -> None:
    """Two levels down, by the name that vLLM gives it."""
    worker = "exec -a VLLM::Worker_TP5 sleep 60"
    parent = subprocess.Popen(["bash", "-c", f"bash -c '{worker}' & wait"])
    try:
        for _ in range(200):
            if serving.workers(parent.pid):
                break
            threading.Event().wait(0.02)
        pid = serving.stop_rank(parent.pid, 5)
        threading.Event().wait(0.1)
        assert Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] == "T"
        os.kill(pid, 9)
    finally:
        parent.kill()
        parent.wait()


def test_the_command_is_what_a_user_would_type() -> None:
    """One way to serve, and the table of several."""
    deployment = serving.Deployment("/models/k3", serving.OURS, 2, 3, {"method": "ngram"})
    command = " ".join(deployment.command(8000))
    assert '--additional-config {"decode_backend": "latency_specialized"}' in command and deployment.rows == 8
    assert '"num_speculative_tokens": 3' in command and "--max-num-seqs 2" in command
    row = {"requests": 2, "tokens": 3, "rows": 8, serving.OURS: 300.0, serving.STOCK: 200.0}
    assert serving.table([row]).splitlines()[1].split() == ["2", "3", "8", "300.0", "200.0", "1.50"]
