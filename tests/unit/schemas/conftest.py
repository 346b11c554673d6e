"""Property tests: as many examples as always, but no clock of their own on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("headwater", deadline=None, print_blob=True)
settings.load_profile("headwater")
