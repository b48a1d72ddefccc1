"""Our own events as server-sent events, with a version and a JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragchat.wire.encoding import HEADERS, server_sent
from ragchat.wire.form import wire_form
from ragchat.wire.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ragchat.wire.moments import Failure, WireEvent


class EventEncoder:
    """Writes each event as ``event: <type>`` and ``data: <JSON>``; see ``events.schema.json``.

    ``start`` with the version comes first. ``end`` comes last and says that nothing is missing; a
    turn that failed ends with ``error`` instead.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return {**HEADERS, "x-ragchat-events": str(SCHEMA_VERSION)}

    def start(self) -> list[bytes]:
        """Returns the event with the version."""
        return [server_sent({"type": "start", "version": SCHEMA_VERSION}, name="start")]

    def feed(self, event: WireEvent) -> list[bytes]:
        """Takes the next event."""
        return [self._written(event)]

    def finish(self) -> list[bytes]:
        """Ends a whole turn."""
        return [server_sent({"type": "end"}, name="end")]

    def fail(self, failure: Failure) -> list[bytes]:
        """Ends a turn that failed."""
        return [self._written(failure)]

    def _written(self, event: WireEvent | Failure) -> bytes:
        form = wire_form(event)
        return server_sent(form, name=form["type"])
