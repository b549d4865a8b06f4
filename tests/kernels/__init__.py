"""The kernels' stages and their protocol, on the packaged code objects."""
