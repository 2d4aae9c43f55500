"""A headless Chromium, found on the PATH or by ``PERAGO_TEST_CHROMIUM``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_CHROMIUM = os.environ.get("PERAGO_TEST_CHROMIUM") or shutil.which("chromium")
# It looks for nothing on the internet of its own accord.
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
needs_chromium = pytest.mark.skipif(
    _CHROMIUM is None, reason="there is no chromium (PERAGO_TEST_CHROMIUM)"
)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        yield opened
        opened.close()
