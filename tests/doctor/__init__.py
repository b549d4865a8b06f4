"""`doctor`: verdicts from facts, facts from a machine."""
