"""The errors of the chat layer."""

from __future__ import annotations

import inspect
import re

import pytest

from ragchat import errors
from ragchat_retrieval.errors import RagchatError


def drawn_tree():
    """Name to parent, as drawn in the module docstring."""
    tree, path = {}, []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^ {4}([ │├└─]*)(\w+)(?: {2,}|$)", line)
        if found:
            depth = len(found[1]) // 4
            path = [*path[:depth], found[2]]
            tree[found[2]] = path[depth - 1] if depth else None
    return tree


def test_the_drawn_tree_is_the_real_one():
    real = {
        name: value.__mro__[1].__name__
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert drawn_tree() == {**real, "RagchatError": None}


@pytest.mark.parametrize(
    "error",
    [
        errors.NoFinalUserMessage(),
        errors.UnsupportedMedia("an image", passage_id="p1"),
        errors.ContextBudgetExceeded(10, smallest=12),
        errors.UnknownCitation("[4]", 3),
        errors.InvalidPrompt("hyde", "must use query", missing=("query",)),
        errors.EmptyResponse(),
        errors.EmptyModelOutput(model="m"),
        errors.EmptyExpansion(),
        errors.InvalidExpansion(3, 1),
    ],
)
def test_every_error_belongs_to_the_one_tree_and_says_what_is_wrong(error):
    assert isinstance(error, RagchatError)
    assert str(error)
    assert not error.retryable


def test_an_unknown_citation_never_quotes_a_long_marker():
    error = errors.UnknownCitation("[" + "secret " * 20, 3)
    assert error.known == 3
    assert len(error.marker) <= 17
