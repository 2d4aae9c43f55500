"""A join of the workspace with a table of another repository, each at a commit."""
