"""Files that the user names, bounded."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import UserError

MAX_BYTES = 16 << 20
"""What we read is a few KiB, and a wrong file should not fill the memory."""


def read(path: str, hint: str) -> str:
    """The UTF-8 text of a file, `-` being stdin. Raises `UserError` with `hint`, which says what to pass."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UserError(f"`{path}` is larger than {MAX_BYTES >> 20} MiB", hint)
        return data.decode()
    except OSError as error:
        raise UserError(f"`{path}` cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise UserError(f"`{path}` is no UTF-8: {error.reason} at byte {error.start}", hint) from error
