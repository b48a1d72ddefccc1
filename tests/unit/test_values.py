"""The values of retrieval are frozen, checked where they are made, and equal when content is."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import io
import math
import pathlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval.errors import (
    DocumentNotUTF8,
    DocumentTooLarge,
    InvalidCandidates,
    InvalidDocument,
    InvalidDocumentID,
    InvalidFilter,
    InvalidMetadata,
    InvalidQuery,
    InvalidSetting,
    InvalidVector,
)
from ragchat_retrieval.filters import Eq, Filter, Gt
from ragchat_retrieval.metadata import Metadata
from ragchat_retrieval.trace import Degradation, Trace
from ragchat_retrieval.values import (
    MAX_DOCUMENT_BYTES,
    Candidate,
    ContextText,
    Document,
    Lines,
    Passage,
    Query,
    Revision,
    SearchResult,
    Span,
    indexed_text,
    passage_id,
    trusted_passage,
)

# Documents


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u00a0"])
def test_a_document_id_must_not_be_blank(blank):
    with pytest.raises(InvalidDocumentID):
        Document(blank, "text")
    with pytest.raises(InvalidDocumentID):
        Document.from_reader(io.BytesIO(b"x"), id=blank)


@pytest.mark.parametrize("id_", [5, None, b"x"])
def test_a_document_id_must_be_a_string(id_):
    with pytest.raises(InvalidDocumentID, match=f"not {type(id_).__name__}"):
        Document(id_, "text")


@pytest.mark.parametrize(
    ("field", "value"),
    [("text", None), ("text", b"x"), ("title", 5), ("source", pathlib.PurePosixPath("a/b.md"))],
)
def test_a_field_of_a_document_must_be_a_string(field, value):
    """Otherwise it would be found at fault deep inside an ingestion, without being named."""
    with pytest.raises(InvalidDocument, match=f"must be a string, not {type(value).__name__}") as e:
        Document("d", **{"text": "text", field: value})
    assert (e.value.document_id, e.value.field) == ("d", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", None),
        ("text", b"x"),
        ("id", 7),
        ("title", 5),
        ("source", pathlib.PurePosixPath("a/b.md")),
        ("digest", None),
        ("corpus", 1),
        ("headings", "A heading"),
        ("headings", None),
        ("headings", ["A", None]),
    ],
)
def test_a_field_of_a_passage_must_be_a_string(field, value):
    """Otherwise no store could keep it, and some would say so in the midst of a write."""
    with pytest.raises(InvalidDocument, match="string") as e:
        Passage(**{"text": "text", "document_id": "d", field: value})
    assert (e.value.document_id, e.value.field) == ("d", field)
    with pytest.raises(InvalidDocument) as e:
        Passage("text", document_id=5)
    assert (e.value.document_id, e.value.field) == (None, "document_id")


def test_optional_fields_are_keyword_only():
    with pytest.raises(TypeError):
        Document("d", "text", "title")
    with pytest.raises(TypeError):
        Passage("text", "id")
    with pytest.raises(TypeError):
        Query("text", ())


def test_documents_of_equal_content_are_equal_and_usable_as_keys():
    first = Document("d", "x", title="t", source="s", metadata={"k": [1]})
    second = Document("d", "x", title="t", source="s", metadata={"k": (1,)})
    assert first == second
    assert hash(first) == hash(second)
    assert first != Document("d", "x", title="t", source="s", metadata={"k": [2]})
    assert pickle.loads(pickle.dumps(first)) == first  # noqa: S301 - our own bytes


def test_a_document_is_frozen_and_keeps_a_copy_of_its_metadata():
    given_metadata = {"tags": ["a"]}
    document = Document("d", "x", metadata=given_metadata)
    given_metadata["tags"].append("b")
    assert document.metadata == {"tags": ["a"]}
    with pytest.raises(dataclasses.FrozenInstanceError):
        document.text = "y"
    with pytest.raises(TypeError, match="read-only"):
        document.metadata["tags"] = []


def test_bad_metadata_is_refused_naming_the_document():
    with pytest.raises(InvalidMetadata, match=r"'d', metadata\.k: ") as caught:
        Document("d", "x", metadata={"k": math.nan})
    assert caught.value.document_id == "d"


@given(st.text())
def test_a_digest_is_the_sha256_of_the_text(text):
    assert Document("d", text).digest == hashlib.sha256(text.encode()).hexdigest()


def test_a_digest_once_asked_for_is_that_documents_alone():
    asked, fresh = Document("d", "old"), Document("d", "old")
    assert asked.digest is asked.digest
    assert asked == fresh
    assert hash(asked) == hash(fresh)
    assert repr(asked) == repr(fresh)
    assert copy.copy(asked).digest == asked.digest
    assert dataclasses.replace(asked, text="new").digest == Document("d", "new").digest


def test_a_lone_surrogate_has_a_digest_and_is_left_to_the_check_at_the_write():
    assert Document("d", "\ud800").digest != Document("d", "\ud801").digest
    assert Passage("\ud800").id != Passage("\ud801").id


# Reading a stream


class Trickle(io.RawIOBase):
    """An unbuffered stream that gives one byte at a time, as sockets and pipes may."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        part = self.data[self.given : self.given + min(1, len(buffer))]
        buffer[: len(part)] = part
        self.given += len(part)
        return len(part)


@given(st.text(), st.booleans())
def test_a_stream_is_read_whole_and_its_byte_order_mark_removed(text, marked):
    data = ("\ufeff" if marked else "").encode() + text.encode()
    expected = text if marked else text.removeprefix("\ufeff")
    assert Document.from_reader(io.BytesIO(data), id="d").text == expected
    assert Document.from_reader(Trickle(data), id="d").text == expected


def test_line_ends_and_labels_are_kept_as_given():
    document = Document.from_reader(
        io.BytesIO(b"a\r\nb\rc\n"), id="d", title="T", source="x.pdf", metadata={"k": 1}
    )
    assert document == Document("d", "a\r\nb\rc\n", title="T", source="x.pdf", metadata={"k": 1})
    assert Document.from_reader(io.BytesIO(b""), id="d") == Document("d", "")


def test_a_stream_of_exactly_the_limit_is_accepted_and_one_byte_more_is_not():
    assert Document.from_reader(io.BytesIO(b"abc"), id="d", limit=3).text == "abc"
    with pytest.raises(DocumentTooLarge) as caught:
        Document.from_reader(io.BytesIO(b"abcd"), id="d", limit=3)
    assert (caught.value.limit, caught.value.document_id) == (3, "d")
    assert MAX_DOCUMENT_BYTES == 16 * 1024 * 1024


def test_no_more_than_one_byte_beyond_the_limit_is_read():
    stream = Trickle(b"x" * 100)
    with pytest.raises(DocumentTooLarge):
        Document.from_reader(stream, id="d", limit=3)
    assert stream.given == 4


def test_the_limit_counts_the_byte_order_mark_and_may_be_zero_but_not_negative():
    with pytest.raises(DocumentTooLarge):
        Document.from_reader(io.BytesIO(b"\xef\xbb\xbfa"), id="d", limit=3)
    assert Document.from_reader(io.BytesIO(b""), id="d", limit=0).text == ""
    with pytest.raises(InvalidSetting, match="limit"):
        Document.from_reader(io.BytesIO(b""), id="d", limit=-1)


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"ab\xff", 2),
        (b"\xef\xbb\xbfab\xff", 5),
        (b"caf\xe9", 3),
        (b"a\xed\xa0\x80", 1),
        (b"\xff\xfea\x00", 0),
        (b"\xf0\x9f\x98", 0),
    ],
)
def test_bytes_that_are_not_utf8_are_refused_naming_the_first_bad_one(data, offset):
    with pytest.raises(DocumentNotUTF8) as caught:
        Document.from_reader(io.BytesIO(data), id="d")
    assert (caught.value.offset, caught.value.document_id) == (offset, "d")


# Passages


def test_a_passage_may_be_text_alone_and_then_has_a_stable_id():
    assert Passage("x") == Passage("x")
    assert Passage("x").id == hashlib.sha256(b"x").hexdigest()[:32]
    assert Passage("x").id != Passage("y").id


def test_a_passage_id_holds_document_ordinal_and_content():
    first = Passage("x", document_id="d", ordinal=2)
    assert first.id == passage_id("d", 2, "x")
    assert first.id.startswith("d#2-")
    others = [
        Passage("y", document_id="d", ordinal=2),
        Passage("x", document_id="d", ordinal=3),
        Passage("x", document_id="e", ordinal=2),
    ]
    assert first.id not in {other.id for other in others}
    assert Passage("x", id="mine", document_id="d").id == "mine"


def test_ranges_and_headings_take_their_types_from_plain_tuples():
    passage = Passage("x", headings=["A", "B"], lines=(1, 2), span=(0, 1))
    assert passage.headings == ("A", "B")
    assert passage.lines == Lines(1, 2)
    assert passage.span == Span(0, 1)
    assert (passage.lines.end, passage.span.end) == (2, 1)
    assert hash(passage) == hash(copy.deepcopy(passage))


@pytest.mark.parametrize("rich", [True, False])
def test_a_trusted_passage_is_what_the_constructor_makes_of_the_same_fields(rich):
    kept = Metadata({"n": 1})
    values = (
        ("text", "a#0", "a", "A", "s", kept, ("One", "Two"), 3, Lines(1, 2), Span(4, 8), 5, "00ff")
        if rich
        else ("", "b", "", None, None, kept, (), None, None, None, 0, "")
    )
    names = [field.name for field in dataclasses.fields(Passage)]
    trusted = trusted_passage(*values)
    made = Passage(**dict(zip(names, (*values, None), strict=True)))
    assert type(trusted) is Passage
    assert [getattr(trusted, name) for name in names] == [getattr(made, name) for name in names]
    assert trusted == made == copy.deepcopy(trusted)
    assert pickle.loads(pickle.dumps(trusted)) == made  # noqa: S301 - our own bytes
    assert hash(trusted) == hash(made)
    assert repr(trusted) == repr(made)
    assert dataclasses.replace(trusted, ordinal=9) == dataclasses.replace(made, ordinal=9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trusted.text = "other"


def test_a_passage_shares_the_metadata_object_of_its_document():
    document = Document("d", "x", metadata={"k": 1})
    assert Passage("x", metadata=document.metadata).metadata is document.metadata


@pytest.mark.parametrize(
    ("fields", "text", "expected"),
    [
        ({}, "Body.", "Body."),
        ({"title": "T"}, "Body.", "T\nBody."),
        ({"title": "T", "headings": ("A", "B")}, "Body.", "T\nA\nB\nBody."),
        ({"title": "A", "headings": ("A", "B")}, "Body.", "A\nB\nBody."),
        ({"title": " T ", "headings": (" ", "")}, "Body.", "T\nBody."),
        ({"title": "Leave"}, "Leave\n\nBody.", "Leave\n\nBody."),
        ({"title": "Leave"}, "  Leave: 25 days.", "  Leave: 25 days."),
        ({"title": "Go"}, "Gophers dig.", "Go\nGophers dig."),
        ({"title": "Go"}, "Go", "Go"),
        ({"title": ""}, "Body.", "Body."),
    ],
)
def test_the_indexed_text_puts_title_and_headings_above_once(fields, text, expected):
    assert indexed_text(Passage(text, **fields)) == expected


# Queries


@pytest.mark.parametrize(
    "given", [{"text": 5}, {"text": None}, {"lexical": 5}, {"semantic": b"x"}, {"variants": [None]}]
)
def test_the_texts_of_a_query_must_be_strings(given):
    with pytest.raises(InvalidQuery, match="must be a string"):
        Query(**{"text": "text", **given})


@pytest.mark.parametrize("blank", ["", "  ", "\x00", "\ud800 \n"])
def test_a_query_must_not_be_blank(blank):
    with pytest.raises(InvalidQuery):
        Query(blank)
    with pytest.raises(InvalidQuery):
        Query("fine").with_text(blank)


def test_a_query_within_the_callers_bounds_goes_on_as_it_is_and_any_other_gets_them():
    caller = Query("asked", scope=Filter.of({"tenant": "a"}), filter=Filter.of({"x": 1}), top_k=3)
    inside = caller.with_text("other words")
    assert inside.bounded_by(caller) is inside
    for change in ({"scope": Filter()}, {"filter": Filter()}, {"top_k": None}):
        outside = dataclasses.replace(inside, **change)
        assert outside.bounded_by(caller) == inside


def test_a_query_alone_has_no_variants():
    query = Query("asked", variants=("other words",))
    assert query.alone() == Query("asked")


def test_every_text_of_a_query_is_cleaned_and_blank_ones_are_left_out():
    query = Query(
        " a\x00b ",
        lexical=" \ud800 ",
        semantic=" s ",
        variants=[" v ", "", "\x00"],
        context=[ContextText(" c ", lexical=0.5), ContextText("\x00")],
    )
    assert query == Query(
        "a b", semantic="s", variants=("v",), context=(ContextText("c", lexical=0.5),)
    )
    assert query.lexical is None


def test_filter_and_scope_accept_every_form_of_a_filter():
    query = Query("q", filter={"team": "a"}, scope=[Eq("tenant", 1)])
    assert query == Query("q", filter=Filter(Eq("team", "a")), scope=Filter(Eq("tenant", 1)))
    assert hash(query) == hash(copy.deepcopy(query))
    assert Query("q", filter=None) == Query("q")
    with pytest.raises(InvalidFilter):
        Query("q", filter="team=a")


def test_a_new_text_drops_the_texts_of_single_lanes_and_keeps_everything_else():
    caller = Query(
        "q",
        lexical="l",
        semantic="s",
        filter=Filter(Eq("owner", "u7")),
        scope=Filter(Eq("tenant", 1)),
        top_k=3,
        context=(ContextText("c", semantic=1),),
        variants=("v",),
    )
    assert caller.with_text("r") == dataclasses.replace(
        caller, text="r", lexical=None, semantic=None
    )


def test_whatever_a_stage_returns_the_callers_bounds_are_imposed_again():
    caller = Query("q", filter=Filter(Eq("owner", "u7")), scope=Filter(Eq("tenant", 1)), top_k=3)
    for returned in (
        Query("wider"),
        Query("other", filter=Filter(Gt("n", 1)), scope=Filter(Eq("tenant", 2)), top_k=99),
    ):
        bounded = returned.bounded_by(caller)
        assert bounded.text == returned.text
        assert (bounded.filter, bounded.scope, bounded.top_k) == (
            caller.filter,
            caller.scope,
            caller.top_k,
        )


@pytest.mark.parametrize("name", ["lexical", "semantic"])
@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_a_context_weight_is_a_finite_number_from_0(name, weight):
    with pytest.raises(InvalidSetting, match=name):
        ContextText("c", **{name: weight})


# Candidates and results


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_candidate_has_a_finite_score(score):
    with pytest.raises(InvalidCandidates):
        Candidate(Passage("x"), score)


def test_a_score_of_numpy_becomes_a_plain_number():
    candidate = Candidate(Passage("x"), np.float32(0.5))
    assert type(candidate.score) is float
    assert candidate == Candidate(Passage("x"), 0.5)


def test_a_result_is_an_immutable_sequence_of_candidates():
    candidates = [Candidate(Passage(text), score) for text, score in [("a", 2.0), ("b", 1.0)]]
    result = SearchResult(
        candidates, queries=[Query("q")], degraded=[Degradation("rerank", "StageTimeout")]
    )
    assert list(result) == candidates
    assert (len(result), result[0], result[-1]) == (2, candidates[0], candidates[1])
    assert result[:1] == (candidates[0],)
    assert candidates[1] in result
    assert result.index(candidates[1]) == 1
    assert list(reversed(result)) == candidates[::-1]
    assert result.queries == (Query("q"),)
    assert result.degraded == (Degradation("rerank", "StageTimeout"),)
    candidates.clear()
    assert len(result) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.candidates = ()


def test_results_are_equal_whatever_they_cost_and_empty_ones_are_false():
    candidates = (Candidate(Passage("a"), 1.0),)
    assert SearchResult(candidates) == SearchResult(candidates, trace=Trace(seconds=3.0))
    assert SearchResult(candidates) != SearchResult()
    assert not SearchResult()


# Revisions


def test_a_revision_keeps_its_own_read_only_float32_vectors():
    given_vectors = np.eye(2)
    revision = Revision(document=Document("d", "x"), passages=[Passage("x")], vectors=given_vectors)
    given_vectors[:] = 7
    assert revision.vectors.dtype == np.float32
    assert revision.vectors.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="read-only"):
        revision.vectors[0, 0] = 1


def test_a_passage_that_names_no_document_becomes_one_of_its_revisions():
    """`Passage(text=…)` alone is valid: its labels, metadata and place are its document's."""
    document = Document("d", "x\ny", title="T", source="d.txt", metadata={"tenant": "a"})
    own = Passage("y", id="mine", title="", metadata={"page": 3})
    first, second = Revision(document, [Passage("x"), own]).passages
    assert first.id == passage_id("d", 0, "x")
    assert (first.document_id, first.title, first.source) == ("d", "T", "d.txt")
    assert first.metadata == {"tenant": "a"}
    assert first.digest == second.digest == document.digest
    assert (second.id, second.ordinal, second.title) == ("mine", 1, "")
    assert second.metadata == {"page": 3}


def test_a_passage_of_another_document_stays_one():
    (passage,) = Revision(Document("d", "x", title="T"), (Passage("x", document_id="e"),)).passages
    assert passage == Passage("x", document_id="e")


@pytest.mark.parametrize("top_k", ["5", 2.5, True])
def test_how_many_to_return_is_a_whole_number(top_k):
    with pytest.raises(InvalidQuery, match="top_k"):
        Query("q", top_k=top_k)
    assert Query("q", top_k=np.int64(5)).top_k == 5


def test_of_a_long_title_the_beginning_is_indexed_with_each_passage():
    """Else a document of as many bytes of title as of text would take the square of them."""
    passage = Passage("body", title="t" * 5_000, headings=("h" * 5_000,))
    assert indexed_text(passage) == "t" * 512 + "\n" + "h" * 512 + "\nbody"


@pytest.mark.parametrize("vectors", [[[1, 2], [1]], "ab", 5, [["a"]], [[None, "x"]]], ids=str)
def test_what_is_no_matrix_is_refused_as_vectors(vectors):
    with pytest.raises(InvalidVector) as caught:
        Revision(document=Document("d", "x"), passages=(), vectors=vectors)
    assert caught.value.document_id == "d"
