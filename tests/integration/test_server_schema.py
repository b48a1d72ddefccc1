"""The server keeps what its OpenAPI document says, whatever is sent."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

import ragchat
from ragchat.server import create_app

SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", create_app(ragchat.in_memory()))
EXCEPTIONS = [
    positive_data_acceptance,  # which messages can be prepared is nothing that JSON Schema can say
]


@SCHEMA.parametrize()
@settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_route_keeps_its_description(case):
    """No server error, no undescribed status, type or body, no bad request that is accepted."""
    # In a form all is text, so that a number in the place of a text is none when it arrives.
    form = [negative_data_rejection] if case.media_type == "multipart/form-data" else []
    case.call_and_validate(excluded_checks=EXCEPTIONS + form)
