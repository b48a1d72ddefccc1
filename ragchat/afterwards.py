"""The run of what comes after a preparation: answering from sentences, checking an answer."""

from __future__ import annotations

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.policy import Policy, Run


def run_afterwards(on_error: str) -> Run:
    """Returns a run for work outside of a preparation.

    Args:
        on_error: ``raise`` lets every failure through and limits nothing; ``skip`` skips what a
            preparation may skip, after the same time.

    Raises:
        InvalidSetting: It is another word.
    """
    if on_error not in ("raise", "skip"):
        raise InvalidSetting("on_error", "must be 'raise' or 'skip'")
    strict = Policy.strict(deadline=None, timeout=None)
    return Run(Policy(deadline=None) if on_error == "skip" else strict)
