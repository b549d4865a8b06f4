"""The emulator as a machine: its Python front, `emulate`, and kernels of other people."""
