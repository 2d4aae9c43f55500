"""An exhaustive model of the workspace transaction; docs/model.md explains it.

It imports nothing of the product: it checks the rules, not their implementation.
"""
