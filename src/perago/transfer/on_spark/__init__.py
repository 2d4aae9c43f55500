"""The Spark engine: the same partition functions as in process, run by Spark tasks."""
