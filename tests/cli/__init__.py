"""The commands that answer without running a model."""
