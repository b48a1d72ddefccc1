"""Server-sent events on their way through: the data of each, as it came.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

from typing import Final

END: Final = b"[DONE]"
"""The data of a stream's last event."""


class DataReader:
    """Is fed the bytes of an event stream and returns the data of each event that is whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Takes the next bytes, cut anywhere."""
        whole = self._rest + piece
        # A line ends with LF, CR or both; behind a CR at the very end the LF may be still to come.
        cut = max(whole.rfind(b"\n"), whole.rfind(b"\r", 0, -1)) + 1
        self._rest = whole[cut:]
        found: list[bytes] = []
        for line in whole[:cut].splitlines():
            if not line:
                if self._lines:
                    found.append(b"\n".join(self._lines))
                    self._lines = []
            elif line.startswith(b"data:"):
                self._lines.append(line[5:].removeprefix(b" "))
            elif line == b"data":
                self._lines.append(b"")
        return found


def event(data: bytes) -> bytes:
    """Returns an event of this data."""
    if b"\n" not in data:
        return b"data: %b\n\n" % data
    return b"".join(b"data: %b\n" % line for line in data.split(b"\n")) + b"\n"
