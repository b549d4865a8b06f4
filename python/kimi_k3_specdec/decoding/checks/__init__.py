"""Every stage of every layer, fed with the device's own inputs of that stage, against the reference (numerics §10)."""
