"""Wire formats of an answer that streams: what a server sends to a browser or to a client."""

from __future__ import annotations

from ragchat.wire.chunks import ChunkEncoder
from ragchat.wire.encoding import Encoder, encoded
from ragchat.wire.failures import failure_of
from ragchat.wire.form import wire_form
from ragchat.wire.moments import Checked, Failure, WireEvent
from ragchat.wire.schema import SCHEMA_VERSION, schema
from ragchat.wire.server_sent import EventEncoder
from ragchat.wire.turn import turn
from ragchat.wire.ui_messages import UIMessageEncoder

__all__ = [
    "SCHEMA_VERSION",
    "Checked",
    "ChunkEncoder",
    "Encoder",
    "EventEncoder",
    "Failure",
    "UIMessageEncoder",
    "WireEvent",
    "encoded",
    "failure_of",
    "schema",
    "turn",
    "wire_form",
]
