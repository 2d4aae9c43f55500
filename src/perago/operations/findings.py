"""What an examination finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked; ``hint`` says what to do if it is not right."""

    check: str
    ok: bool
    text: str
    hint: str = ""
