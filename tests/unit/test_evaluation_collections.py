"""Test collections in BEIR's form, as they come and as they should not."""

from __future__ import annotations

import gzip
import json

import pytest

from ragchat_retrieval.errors import InvalidCollection
from ragchat_retrieval.evaluation import Topic, load_collection
from ragchat_retrieval.values import Query

CORPUS = [{"_id": "d1", "title": "Leave", "text": "25 days."}, {"_id": "d2", "text": " \n"}]
QUERIES = [
    {"_id": "q1", "text": "how much leave?", "kind": ["a", "b"]},
    {"_id": "q2", "text": "nothing is known of this"},
    {"_id": "q3", "text": "only irrelevant ones"},
    {"_id": "q4", "text": "  "},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td9\t0\nq3\td1\t0\nq4\td1\t1\n"


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(lines(CORPUS), "utf-8")
    (tmp_path / "queries.jsonl").write_text(lines(QUERIES), "utf-8")
    (tmp_path / "qrels.tsv").write_text(QRELS, "utf-8")
    return tmp_path


def test_a_folder_is_read_into_topics_and_documents(folder):
    collection = load_collection(folder)
    assert collection.name == folder.name
    assert [topic.id for topic in collection.topics] == ["q1"]
    assert collection.topics[0].grades == {"d1": 2, "d9": 0}
    assert collection.left_out == 3
    (document,) = collection.documents()
    assert (document.id, document.title, document.text) == ("d1", "Leave", "25 days.")
    assert not collection.conversational


def test_files_may_be_gzipped_and_begin_with_a_byte_order_mark(folder):
    plain = load_collection(folder)
    documents = list(plain.documents())
    for path in list(folder.iterdir()):
        marked = "\ufeff".encode() + path.read_bytes()
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(marked))
        path.unlink()
    packed = load_collection(folder)
    assert packed.topics == plain.topics
    assert list(packed.documents()) == documents


def test_judgments_may_lie_in_beir_s_subfolder(folder):
    (folder / "qrels").mkdir()
    (folder / "qrels.tsv").rename(folder / "qrels" / "test.tsv")
    (folder / "qrels" / "train.tsv").write_text("h\th\th\nq2\td1\t1\n", "utf-8")
    assert [topic.id for topic in load_collection(folder).topics] == ["q1"]
    train = load_collection(folder, qrels="qrels/train")
    assert [topic.id for topic in train.topics] == ["q2"]


def test_other_names_choose_other_files(folder):
    (folder / "queries.de.jsonl").write_text(lines([{"_id": "q1", "text": "Urlaub?"}]), "utf-8")
    (folder / "corpus.de.jsonl").write_text(lines([{"_id": "d1", "text": "25 Tage"}]), "utf-8")
    german = load_collection(folder, queries="queries.de", corpus="corpus.de")
    assert german.topics[0].query.text == "Urlaub?"
    assert [document.text for document in german.documents()] == ["25 Tage"]


def test_a_folder_without_a_corpus_has_topics_only(folder):
    (folder / "corpus.jsonl").unlink()
    collection = load_collection(folder)
    assert collection.corpus is None
    with pytest.raises(InvalidCollection, match="no corpus"):
        list(collection.documents())


def test_a_topic_knows_its_conversation_and_its_segments():
    first = {"role": "user", "content": "Arizona?"}
    reply = {"role": "assistant", "content": "A state."}
    last = {"role": "user", "content": "and its capital?"}
    topic = Topic("t", Query("and its capital?"), {"d": 1}, messages=(first, reply, last))
    opening = Topic(
        "s", Query("Arizona?"), {"d": 1}, messages=(first,), fields={"kind": ["b", "a"]}
    )
    assert topic.history == (first, reply)
    assert topic.group == opening.group != Topic("u", Query("x"), {"d": 1}).group
    assert (topic.segments("turn"), opening.segments("turn")) == (("later",), ("first",))
    assert opening.segments("kind") == ("b", "a")
    assert topic.segments("kind") == ("–",)
    assert Topic("v", Query("x"), {}, fields={"turn": 3}).segments("turn") == ("3",)
    assert Topic("w", Query("x"), {}, fields={"kind": []}).segments("kind") == ("–",)


def test_the_first_topics_stand_for_a_quick_look(folder):
    (folder / "qrels.tsv").write_text(QRELS + "q2\td1\t1\n", "utf-8")
    collection = load_collection(folder)
    assert len(collection.topics) == 2
    assert [topic.id for topic in collection.first(1).topics] == ["q1"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("queries.jsonl", None, "queries.jsonl"),
        ("qrels.tsv", None, "qrels.tsv"),
        ("queries.jsonl", b"{", "line 1: no JSON object"),
        ("queries.jsonl", b"[]", "line 1: no JSON object"),
        ("queries.jsonl", b'{"_id": 3, "text": "x"}', "_id is no text"),
        ("queries.jsonl", b'\n{"_id": "q1"}', "line 2: text is no text"),
        ("queries.jsonl", b"\xff\xfe", "not UTF-8"),
        ("queries.jsonl", b'{"_id": "q1", "text": "x", "messages": {"a": 1}}', "no list"),
        ("queries.jsonl", b'{"_id": "q1", "text": "x"}\n' * 2, "line 2: a query id occurs twice"),
        ("queries.jsonl", b"", "no query has a relevant document"),
        ("queries.jsonl", b"[" * 100_000, "line 1: no JSON object"),
        ("qrels.tsv", b"h\nq1\td1", "line 2: not three columns"),
        ("qrels.tsv", b"1\t0\t31\t1", "line 1: not three columns"),
        ("qrels.tsv", b"q1 d1 1", "line 1: not three columns"),
        ("qrels.tsv", b"q1\td1", "line 1: not three columns"),
        ("qrels.tsv", b"q1\td1\t1.0\nq1\td2\t1", "line 1: the grade is no integer"),
        ("qrels.tsv", b"h\nq1\td1\tgood", "line 2: the grade is no integer"),
        ("qrels.tsv", b"h\nq1\td1\t61", "exceeds 60"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(folder, name, content, words):
    path = folder / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InvalidCollection, match=words):
        load_collection(folder)


def test_judgments_without_a_header_lose_none(folder):
    (folder / "qrels.tsv").write_text("q1\td1\t1\nq2\td1\t1\n", "utf-8")
    assert [topic.id for topic in load_collection(folder).topics] == ["q1", "q2"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([*CORPUS, CORPUS[0]], "line 3: a document id occurs twice"),
        ([{"_id": " ", "text": "x"}], "line 1: _id is blank"),
        ([{"_id": 5, "text": "x"}], "line 1: _id is no text"),
    ],
)
def test_a_document_that_cannot_be_told_from_others_is_named_with_its_line(folder, rows, words):
    (folder / "corpus.jsonl").write_text(lines(rows), "utf-8")
    with pytest.raises(InvalidCollection, match=words):
        list(load_collection(folder).documents())


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(b"{}" * 999)[:-9]], ids=["other", "cut short"]
)
def test_a_damaged_archive_is_named(folder, content):
    (folder / "queries.jsonl").unlink()
    (folder / "queries.jsonl.gz").write_bytes(content)
    with pytest.raises(InvalidCollection, match="gzip"):
        load_collection(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidCollection, match="no such folder") as caught:
        load_collection(tmp_path / "nowhere")
    assert caught.value.path.endswith("nowhere")
