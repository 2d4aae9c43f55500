"""Obtain servers (find, build or fetch them) and run them as child processes on loopback.

The embedded stack (:mod:`perago.dev`) uses it, and a worker with managed Spark.
"""
