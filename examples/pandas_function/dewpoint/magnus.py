"""The Magnus formula, on whole columns."""

from __future__ import annotations

import numpy as np
import pandas as pd

# For water, between -45 and 60 degrees Celsius.
_B, _C = 17.62, 243.12


def dew_point(celsius: pd.Series, humidity: pd.Series) -> pd.Series:
    """Return the dew point in degrees Celsius; the humidity is relative, in percent."""
    gamma = np.log(humidity / 100.0) + _B * celsius / (_C + celsius)
    found: pd.Series = _C * gamma / (_B - gamma)
    return found
