"""The OpenAI-compatible server. What serves needs the extra ``server``; its keys do not."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ragchat_retrieval.errors import MissingExtra

if TYPE_CHECKING:
    from ragchat.server.app import create_app
    from ragchat.server.keys import Key, KeyFile, KeyRing, new_key
    from ragchat.server.settings import ServerSettings

__all__ = ["Key", "KeyFile", "KeyRing", "ServerSettings", "create_app", "new_key"]

_HOMES = {
    "create_app": "app",
    "Key": "keys",
    "KeyFile": "keys",
    "KeyRing": "keys",
    "ServerSettings": "settings",
    "new_key": "keys",
}
_NEEDED = frozenset({"fastapi", "multipart", "prometheus_client", "starlette", "uvicorn"})
"""What the extra brings."""


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first asked for."""
        if name not in _HOMES:
            problem = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(problem, name=name, obj=sys.modules[__name__])
        try:
            value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in _NEEDED:
                raise MissingExtra("server", "the server") from None
            raise
        globals()[name] = value
        return value
