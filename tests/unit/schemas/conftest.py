"""Property tests: as many examples as always, but no clock of their own on a busy machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("headwater", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headwater")
