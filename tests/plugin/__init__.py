"""The plug-in without vLLM."""
