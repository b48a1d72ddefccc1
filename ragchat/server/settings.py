"""`ServerSettings`: what a server may do and how much of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ragchat_retrieval.errors import InvalidSetting

MIB = 1024 * 1024
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Names under which a browser on this machine reaches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of one server.

    Raises:
        InvalidSetting: A number is not positive, the model is blank, or an origin is none.
    """

    model: str | None = None
    """The chat model that answers, whatever model a request names; None answers with sentences of
    the documents."""

    top_k: int = 5
    """Passages found for a question, where the request does not say."""

    max_top_k: int = 50
    """Most passages that a request may ask for."""

    max_context_tokens: int = 2000
    """Most tokens of evidence in a prompt."""

    cors: tuple[str, ...] = ()
    """Origins whose pages may call the server from a browser, such as ``https://app.example``."""

    hosts: tuple[str, ...] = ()
    """Host names that requests may be addressed to, without port; empty allows all. A server
    without keys on this machine needs it against pages that rebind their own name to it."""

    max_body_bytes: int = 16 * MIB
    """Most bytes of a JSON body."""

    max_messages: int = 10_000
    """Most messages of a chat request."""

    max_upload_bytes: int = 256 * MIB
    """Most bytes of an upload, all files together."""

    max_upload_files: int = 1000
    """Most files of an upload."""

    requests_per_minute: int = 6000
    """Most requests of one key a minute; as many may come at once."""

    max_concurrent: int = 256
    """Most requests of one key that run at the same time."""

    max_running: int = 1024
    """Most requests of all keys that run at the same time."""

    body_timeout: float = 30.0
    """Seconds to wait for the next piece of a request's body."""

    stall_timeout: float = 60.0
    """Seconds after which a client that does not read its stream is given up."""

    heartbeat: float = 15.0
    """Seconds of silence after which a stream sends a comment."""

    grace: float = 30.0
    """Seconds that running answers get when the server stops."""

    max_rounds: int = 1000
    """Most turns whose evidence is kept for their rounds of tool calls."""

    max_round_bytes: int = 64 * MIB
    """Most bytes of text in those."""

    round_seconds: float = 900.0
    """How long a turn's evidence is kept."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, int | float) and not (math.isfinite(value) and value > 0):
                raise InvalidSetting(setting.name, "must be a positive number")
        if self.model is not None and not self.model.strip():
            raise InvalidSetting("model", "must not be blank")
        for origin in self.cors:
            scheme, _, rest = origin.partition("://")
            if scheme not in {"http", "https"} or not rest or "/" in rest:
                raise InvalidSetting("cors", "must be origins, such as https://app.example")
