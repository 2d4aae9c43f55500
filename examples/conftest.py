"""The fixtures for the tests of the examples; they are in a module that type checkers read."""

from backstage.fixtures import perago_spark, perago_stack, perago_workspace

__all__ = ["perago_spark", "perago_stack", "perago_workspace"]
