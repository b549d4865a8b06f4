"""Tests of the command `kimi-k3-specdec run`."""
