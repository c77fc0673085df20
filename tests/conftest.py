"""Shared test settings: hypothesis profiles (`--hypothesis-profile=thorough` for a long run)."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fast", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fast")
