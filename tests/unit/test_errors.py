"""The errors of both layers."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from ragchat import errors
from ragchat_retrieval import errors as core
from ragchat_retrieval.errors import RagchatError


def drawn_tree(module):
    """Name to parent, as drawn in the module docstring."""
    tree, path = {}, []
    for line in module.__doc__.splitlines():
        found = re.match(r"^ {4}([ │├└─]*)(\w+)(?: {2,}|$)", line)
        if found:
            depth = len(found[1]) // 4
            path = [*path[:depth], found[2]]
            tree[found[2]] = path[depth - 1] if depth else None
    return tree


@pytest.mark.parametrize("module", [errors, core])
def test_the_drawn_tree_is_the_real_one_and_its_leaves_are_named_by_where_it_stands(module):
    real = {
        name: value.__mro__[1].__name__
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }
    elsewhere = {"ChatError": "RagchatError"}
    assert {**drawn_tree(module), **elsewhere} == {**real, **elsewhere, "RagchatError": None}


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


@pytest.mark.parametrize(
    "kind",
    [
        value
        for module in (core, errors)
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ],
)
def test_every_error_passes_from_process_to_process_with_its_message_and_data(kind):
    """A pool whose worker raises what cannot be read again is broken, and tells no cause."""
    error = kind.__new__(kind)
    error.args, error.data = ("wrong",), ["data"]
    passed = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    for again in (passed, copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), vars(again)) == (kind, "wrong", {"data": ["data"]})


def test_an_error_that_takes_more_than_a_message_is_the_same_in_another_process():
    error = errors.WindowExceeded(100, messages=90, tools=5, reserve=10)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert (again.limit, again.window) == (-5, 100)


def test_an_unknown_citation_never_quotes_a_long_marker():
    error = errors.UnknownCitation("[" + "secret " * 20, 3)
    assert error.known == 3
    assert len(error.marker) <= 17
