"""Speculative decoding of a model whose served layers run on a device, every stage compared with the reference."""
