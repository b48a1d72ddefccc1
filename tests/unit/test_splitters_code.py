"""Code is cut before definitions, then at blank lines, then between lines."""

from __future__ import annotations

import re

import pytest

from ragchat_retrieval.chunking import CodeSplitter
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Document


def words(text):
    return len(re.findall(r"\w+|[^\w\s]", text))


def split(text, size, overlap=0):
    return CodeSplitter(size, overlap, count=words).split(Document("d", text))


def firsts(passages):
    return [passage.text.splitlines()[0] for passage in passages]


PYTHON = '''"""Module."""

import os

LIMIT = 3


@cached
def small(a):
    return a


# Says more.
class Large:
    """A class."""

    size = 1

    def first(self):
        x = 1

        return x

    async def second(self):
        return 2


def last():
    pass
'''


def test_a_definition_begins_a_passage_with_its_decorators_and_comments():
    assert firsts(split(PYTHON, 41)) == ['"""Module."""', "# Says more.", "def last():"]
    assert firsts(split(PYTHON, 20)) == [
        '"""Module."""',
        "@cached",
        "# Says more.",
        "    def first(self):",
        "def last():",
    ]


def test_a_passage_from_inside_a_definition_names_it():
    assert [passage.headings for passage in split(PYTHON, 20)] == [
        (),
        (),
        (),
        ("class Large",),
        (),
    ]


def test_a_file_of_one_class_is_cut_before_its_methods():
    text = "class A:\n    def f(self):\n        a\n    def g(self):\n        b\n"
    passages = split(text, 11)
    assert firsts(passages) == ["class A:", "    def g(self):"]
    assert [p.headings for p in passages] == [(), ("class A",)]


def test_a_large_function_is_cut_at_blank_lines_then_at_lines():
    text = "def f():\n    a = 1\n    b = 2\n\n    c = 3\n    d = 4\n"
    assert [p.text for p in split(text, 12)] == [
        "def f():\n    a = 1\n    b = 2",
        "    c = 3\n    d = 4",
    ]
    assert [p.text for p in split(text, 5)] == [
        "def f():",
        *text.splitlines()[1:3],
        *text.splitlines()[4:],
    ]
    assert split(text, 5)[-1].headings == ("def f()",)


@pytest.mark.parametrize(
    "text",
    [
        "int add(int a) {\n    return a;\n}\n\nstatic void *work(void *p)\n{\n    go(p);\n}\n",
        "fn add(a: i32) -> i32 {\n    a\n}\n\npub(crate) async fn work() {\n    go();\n}\n",
        "func Add(a int) int {\n\treturn a\n}\n\nfunc (s *S) Work() {\n\tgo()\n}\n",
        "export function add(a) {\n  a;\n}\n\nexport const work = async (p) => {\n  go(p);\n};\n",
        "public class A {\n  int a;\n}\n\n@Safe\npublic final class B {\n  int b;\n}\n",
        "def add(a)\n  a\nend\n\ndef work\n  go\nend\n",
        "CREATE TABLE a (\n  x int\n);\n\ncreate or replace view b as\n  select 1;\n",
        "fun add(a: Int): Int {\n  return a\n}\n\nprivate suspend fun work() {\n  go()\n}\n",
        "/** A. */\nint add(int a) {\n  a;\n}\n\n/**\n * W.\n */\nvoid W::work() {\n  go();\n}\n",
    ],
    ids=["c", "rust", "go", "javascript", "java", "ruby", "sql", "kotlin", "c++"],
)
def test_definitions_of_many_languages_are_known(text):
    """Two definitions make two passages, though blank lines play no part at this size."""
    both = text.replace("\n\n", "\n")
    passages = split(both, words(both) - 1)
    first, second = text.rstrip().split("\n\n")
    assert [p.text for p in passages] == [first, second]


def test_calls_and_statements_begin_no_passage():
    text = "def f():\n    run(a, b)\n    if check(a):\n        go(b)\n    return done(a)\n"
    assert firsts(split(text, words(text))) == ["def f():"]
    assert len(split(text + text, words(text))) == 2


def test_lines_of_any_length_are_no_trouble():
    """Generated code: one line of a megabyte, looked at only where it begins."""
    text = "var a=" + "f(1)," * 20_000 + "0;"
    passages = CodeSplitter(512).split(Document("d", text))
    assert all(p.headings == () for p in passages)
    assert "".join(p.text for p in passages) == text


def test_a_large_file_without_definitions_is_looked_at_once():
    """A dump of a database has one line a row and no function: its lines are read once a file."""
    text = "insert into plants values (1, 2);\n" * 30_000
    passages = CodeSplitter(32).split(Document("d", text))
    assert sum(passage.text.count("insert") for passage in passages) == 30_000


def test_windows_line_ends_are_line_ends():
    text = "def f():\r\n    pass\r\n\r\n\r\ndef g():\r\n    pass\r\n"
    assert firsts(split(text, 7)) == ["def f():", "def g():"]


@pytest.mark.parametrize("sizes", [(0, 0), (4, 4), (4, -1)])
def test_bad_sizes_are_refused(sizes):
    with pytest.raises(InvalidSetting):
        CodeSplitter(*sizes)
