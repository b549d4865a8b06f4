"""Asks a server as a client would: `python ask.py PORT CASE.json OUT.json`, with OpenAI's own client, streaming."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import openai


def ask(client: Any, prompt: list[int], tokens: int, out: dict[str, Any]) -> None:
    """One streamed completion: what came, and the error that ended it, if one did."""
    out["seen"] = []
    try:
        stream = client.completions.create(
            model="nano", prompt=prompt, max_tokens=tokens, temperature=0, stream=True,
            extra_body={"ignore_eos": True, "return_token_ids": True})
        for chunk in stream:
            for choice in chunk.choices:
                out["seen"] += getattr(choice, "token_ids", None) or []
                out["finish_reason"] = choice.finish_reason or out.get("finish_reason")
    except openai.OpenAIError as error:
        out["error"] = f"{type(error).__name__}: {error}"


def main() -> None:
    """All prompts at once."""
    case = json.loads(Path(sys.argv[2]).read_text())
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="none", max_retries=0, timeout=120)
    outs: list[dict[str, Any]] = [{} for _ in case["prompts"]]
    threads = [threading.Thread(target=ask, args=(client, prompt, case["tokens"], out))
               for prompt, out in zip(case["prompts"], outs, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Path(sys.argv[3]).write_text(json.dumps(outs))


if __name__ == "__main__":
    main()
