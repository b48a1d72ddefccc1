"""Tables stand apart, their rows whole, their header with every piece."""

from __future__ import annotations

import pytest

from ragchat_retrieval.chunking import TableSplitter
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Document


def split(text, size=100, **options):
    options.setdefault("count", lambda value: len(value.split()))
    return TableSplitter(size, **options).split(Document("d", text))


MARKDOWN = """# Prices

Small text before.

| what | price |
|---|---|
| tea | 3 |
| coffee | 4 |

Small text after.

| a | b |
|---|---|
| 1 | 2 |
"""


def test_a_table_is_a_passage_of_its_own_under_its_headings():
    passages = split(MARKDOWN)
    assert [p.text.splitlines()[0] for p in passages] == [
        "Small text before.",
        "| what | price |",
        "Small text after.",
        "| a | b |",
    ]
    assert {p.headings for p in passages} == {("Prices",)}


def test_pieces_of_a_large_table_repeat_its_header_in_their_headings():
    passages = split(MARKDOWN, 11)
    pieces = [p for p in passages if "|" in p.text][:2]
    assert [p.text for p in pieces] == [
        "| what | price |\n|---|---|\n| tea | 3 |",
        "| coffee | 4 |",
    ]
    assert [p.headings for p in pieces] == [("Prices",), ("Prices", "| what | price |")]


CSV = 'name,say\n"tea","hot\nwater"\ncoffee,"a ""strong"" one"\ncocoa,sweet\n'


def test_rows_of_delimited_text_are_packed_and_cut_inside_quotes_only_if_too_large():
    passages = split(CSV, 2, form="delimited")
    assert [p.text for p in passages] == [
        "name,say",
        '"tea","hot\nwater"',
        'coffee,"a ""strong""',
        'one"\ncocoa,sweet',
    ]
    assert [p.headings for p in passages] == [(), *[("name,say",)] * 3]
    assert [p.text for p in split(CSV, 4, form="delimited")] == [
        'name,say\n"tea","hot\nwater"',
        'coffee,"a ""strong"" one"\ncocoa,sweet',
    ]


def test_a_quote_that_is_never_closed_costs_no_row():
    text = 'a,b\n"x,1\n' + "".join(f"row {n},2\n" for n in range(50))
    passages = split(text, 8, form="delimited")
    assert len(passages) > 5
    assert "row 49,2" in passages[-1].text


@pytest.mark.parametrize(
    "options", [{"form": "html"}, {"size": 0}, {"size": 4, "overlap": 4}], ids=str
)
def test_bad_settings_are_refused(options):
    with pytest.raises(InvalidSetting):
        TableSplitter(**options)


def test_names_tell_the_form():
    assert TableSplitter().name != TableSplitter(form="delimited").name
