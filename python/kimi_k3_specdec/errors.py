"""Errors that the user can solve; any other is a defect of this package."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or an unusable installation: the message says what and why, `hint` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        """Both are printed, each on its own line."""
        super().__init__(message)
        self.hint = hint
