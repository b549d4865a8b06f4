"""Why a run cannot start."""

from __future__ import annotations


class Refusal(Exception):
    """Bad input: the message says what and why, `hint` what to do."""

    def __init__(self, what: str, hint: str) -> None:
        """Both are printed, each on its own line."""
        super().__init__(what)
        self.hint = hint
