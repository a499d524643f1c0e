"""For whoever keeps the service running: health, workers, metrics."""

from __future__ import annotations

from onward.api.routing import router

health = router("/health", "operations")
workers = router("/workers", "operations")
metrics = router("/metrics", "operations")
