"""What `kimi_k3_specdec.runtime` reads off configuration objects, and what it answers."""
