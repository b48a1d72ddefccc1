"""Loading onnxruntime, without its reports."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def import_quietly(name: str) -> Any:  # noqa: ANN401 - a module
    """Imports a package that loads onnxruntime, and tells that to report to nobody.

    From version 1.29 on, it otherwise names the machine in a file, sends its maker what it is used
    for, and starts a thread for that when it is imported, for which a forked process waits at its
    end. It looks at the environment once, when it is loaded; what yours says stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return import_module(name)
