"""The dew point of air: a package without Spark, which can be tested and used without it."""

from __future__ import annotations

from pandas_function.dewpoint.magnus import dew_point

__all__ = ["dew_point"]
