"""What this machine says of itself; `specdec-core` decides what it means. Imports neither torch nor vLLM."""

from .gather import Places, gather

__all__ = ["Places", "gather"]
