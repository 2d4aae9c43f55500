"""Spark: the Connect server, what it is told about LakeFS, and the sessions of executions."""
