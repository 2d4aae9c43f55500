"""Properties are about what is true, not about how fast a busy machine shows it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("perago", deadline=None)
settings.load_profile("perago")


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A folder of a user to whom permissions apply: they do not to root."""
    if os.geteuid() != 0:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)
