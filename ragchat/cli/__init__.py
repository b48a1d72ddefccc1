"""The command line ``ragchat``, which `ragchat.cli.app` puts together."""

from __future__ import annotations

from ragchat.cli.entry import main

__all__ = ["main"]
