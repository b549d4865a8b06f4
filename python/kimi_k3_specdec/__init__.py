"""Low-latency speculative decoding of Kimi-K3 on AMD MI355X (gfx950), as a plug-in for vLLM."""

from ._native import __version__ as __version__
