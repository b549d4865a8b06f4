"""The truth of this project: Kimi-K3 in plain torch on the CPU, sharded and rounded as the kernels are.

Written from the numerics specification, to be read beside it; a docstring's "numerics §4.4" cites its section.
"""
