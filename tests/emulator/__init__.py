"""The emulator's instructions against oracles that do not come from it."""
