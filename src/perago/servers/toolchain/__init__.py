"""Obtain what servers are run from: a Java, a Go, and artifacts by their coordinates."""
