"""The Spark engine: the partition functions of the transfer, run by Spark tasks."""
