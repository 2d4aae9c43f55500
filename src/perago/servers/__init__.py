"""Obtain servers (find, build or fetch them) and run them as child processes on loopback.

Used by the embedded stack (:mod:`perago.dev`) and by a worker for its own Spark server.
"""
