"""Counts and timings in the text format of Prometheus; none tells whose they are."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The metrics of one server, in a registry of its own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "ragchat_requests",
            "Requests by route, method and status.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "ragchat_first_byte_seconds",
            "Seconds until an answer began.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.preparing = Histogram(
            "ragchat_prepare_seconds",
            "Seconds of retrieval in front of an answer.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.left = Counter(
            "ragchat_clients_left",
            "Requests whose client left before the answer was whole.",
            registry=self._registry,
        )
        self.running = Gauge(
            "ragchat_running_requests", "Requests that run now.", registry=self._registry
        )

    def text(self) -> bytes:
        """Returns all of them."""
        return generate_latest(self._registry)
