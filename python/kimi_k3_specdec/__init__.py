"""Low-latency speculative decoding of Kimi-K3 on AMD MI355X (gfx950), as a plug-in for vLLM."""


def __getattr__(name: str) -> str:
    # Late, so that the plug-in can say what is wrong with an extension that does not load.
    if name == "__version__":
        from ._native import __version__

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
