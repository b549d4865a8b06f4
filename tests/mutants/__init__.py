"""Kernels with one mistake each, and that the checks find every one."""
