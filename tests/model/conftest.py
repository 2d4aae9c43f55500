from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.uncounted import uncounted


@pytest.fixture(autouse=True)
def _uncounted() -> Iterator[None]:
    with uncounted():
        yield
