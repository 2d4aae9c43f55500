"""The Spark engine: the partition functions of the transfer, run by tasks of Spark jobs."""
