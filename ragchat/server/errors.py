"""Errors as HTTP answers, in the shape of the OpenAI API."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import openai

from ragchat.errors import (
    ContextBudgetExceeded,
    EmptyResponse,
    FailedResponse,
    InvalidAugmentation,
    InvalidRequest,
)
from ragchat.wire.failures import place_of
from ragchat_retrieval.errors import (
    CorpusChanged,
    DeadlineExceeded,
    DocumentChanged,
    DocumentTooLarge,
    DuplicateDocumentID,
    EmbeddingError,
    IdentityMismatch,
    InvalidDocument,
    InvalidFilter,
    InvalidQuery,
    InvalidSetting,
    PassageIDConflict,
    RerankError,
    StageTimeout,
    StoreError,
    TokenizerUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("ragchat.server")

_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((ContextBudgetExceeded,), 400),
    ((IdentityMismatch, DuplicateDocumentID, PassageIDConflict, DocumentChanged), 409),
    ((CorpusChanged,), 409),
    ((DocumentTooLarge,), 413),
    ((InvalidRequest, InvalidAugmentation, InvalidFilter, InvalidQuery, InvalidDocument), 400),
    ((InvalidSetting,), 400),
    ((DeadlineExceeded, StageTimeout), 504),
    ((StoreError, EmbeddingError, RerankError, TokenizerUnavailable), 503),
    ((EmptyResponse, FailedResponse), 502),
)
_CODES: dict[type[BaseException], str] = {ContextBudgetExceeded: "context_length_exceeded"}
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KEPT_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")
_FIRST_SERVER_ERROR = 500


class Problem(Exception):
    """An answer that is an error.

    Attributes:
        status: The HTTP status.
        body: The JSON body.
        headers: Further headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        usual = "invalid_request_error" if status < _FIRST_SERVER_ERROR else "server_error"
        error = {
            "message": message,
            "type": _TYPES.get(status, usual),
            "param": param,
            "code": code,
        }
        self.body = {"error": error} if body is None else body
        self.headers = dict(headers or {})


def problem_of(error: BaseException, *, key: str = "") -> Problem:
    """Returns the answer for an error.

    Messages of our own errors hold no content, so they are told. An error of the chat model's
    server keeps its status and its body. Any other error is told as 500 without a word about it,
    and logged by its class and place.

    Args:
        error: What was raised.
        key: The chat model's key, which is taken out of whatever its server said.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, openai.APIError):
        return _passed_on(error, key)
    for kinds, status in _STATUSES:
        if isinstance(error, kinds):
            # To send a document again that cannot be embedded would not help.
            refused = isinstance(error, EmbeddingError) and error.document_id is not None
            return Problem(400 if refused else status, str(error), code=_code(error))
    _log.error("%s", place_of(error))
    return Problem(500, "something went wrong on the server", code="internal")


def _code(error: BaseException) -> str:
    known = _CODES.get(type(error))
    return known or _CAPITAL.sub("_", type(error).__name__).lower()


def _passed_on(error: openai.APIError, key: str) -> Problem:
    if isinstance(error, openai.APIStatusError):
        status, given = error.status_code, error.response.headers
        headers = {name: given[name] for name in _KEPT_HEADERS if name in given}
        message = f"the chat model's server answered with status {status}"
        body = _told(error.response.text, key)
        return Problem(status, message, code="upstream", headers=headers, body=body)
    if isinstance(error, openai.APITimeoutError):
        return Problem(504, "the chat model's server did not answer in time", code="upstream")
    if isinstance(error, openai.APIConnectionError):
        return Problem(502, "the connection to the chat model's server failed", code="upstream")
    body = _told(json.dumps({"error": error.body}), key)  # in the middle of a stream
    return Problem(502, "the chat model's server failed", code="upstream", body=body)


def _told(text: str, key: str) -> dict[str, Any] | None:
    """Returns what the chat model's server said, less its key; None if it is no error."""
    try:
        body = json.loads(text.replace(key, "***") if key else text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and "error" in body else None
