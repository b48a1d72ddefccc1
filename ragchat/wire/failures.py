"""What a failed turn tells a client."""

from __future__ import annotations

import traceback
from http import HTTPStatus

from ragchat.wire.moments import Failure
from ragchat_retrieval.errors import RagchatError

_RETRYABLE = frozenset({408, 409, 429})
_UPSTREAM = "the connection to the chat model failed"
_INTERNAL = "something went wrong on the server"


def failure_of(error: BaseException) -> Failure:
    """Returns what a client may know of an error.

    Messages of our own errors hold no content, so they are told. Those of other libraries may
    repeat prompts or keys, so only the HTTP status of a chat model's server is.
    """
    if isinstance(error, RagchatError):
        return Failure(type(error).__name__, str(error), retryable=error.retryable)
    status = getattr(error, "status_code", None)
    if type(status) is int:
        lasting = status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _RETRYABLE
        problem = f"the chat model's server answered with status {status}"
        return Failure("upstream", problem, status=status, retryable=not lasting)
    if _is_connection_error(error):
        return Failure("upstream", _UPSTREAM, retryable=True)
    return Failure("internal", _INTERNAL)


def place_of(error: BaseException) -> str:
    """Returns an error's class and where it was raised: what a log may hold of any error."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    return f"{type(error).__name__} at {place}"


def _is_connection_error(error: BaseException) -> bool:
    """Recognises connection and time-out errors of HTTP clients by name, without importing any."""
    names = {kind.__name__ for kind in type(error).__mro__}
    known = {"APIConnectionError", "TransportError", "ConnectionError", "TimeoutError", "APIError"}
    return not names.isdisjoint(known)
