"""AMD's instruction pseudocode, read from where PyPI's tinygrad ships it, and carried out by an interpreter of our own.

tinygrad compiles the same text for its own runtime; an interpreter on exact integers shares no assumption with it or
with the emulator, and is small enough to be read against the manual's conventions.
"""

from .library import Library
from .parser import Parser, Unreadable

__all__ = ["Library", "Parser", "Unreadable"]
