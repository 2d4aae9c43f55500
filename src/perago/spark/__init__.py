"""Spark: which Connect server a worker uses, and the Connect session of each execution."""
