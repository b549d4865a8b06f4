"""Low-latency speculative decoding of Kimi-K3 on AMD MI355X (gfx950), as a plug-in for vLLM."""

from importlib.metadata import version

__version__ = version("kimi-k3-specdec")
