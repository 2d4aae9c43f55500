"""Pack files into a zip; the same files give the same bytes, whenever and wherever."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

_DATE = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16


def zip_files(files: Mapping[str, Path]) -> bytes:
    """Return a zip of files, by the names that they have in it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = _READABLE
            bundle.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()
