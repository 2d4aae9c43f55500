"""Properties are about what is true, not about how fast a busy machine shows it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("perago", deadline=None)
settings.load_profile("perago")
