"""The suite for eight MI355X, run on one with `pytest -m mi355x`; what it is made of is tested without."""
