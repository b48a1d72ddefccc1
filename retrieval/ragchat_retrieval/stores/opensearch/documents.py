"""Rows, entries and clauses in OpenSearch's terms.

Every index has a fixed mapping, whatever metadata there is: tokens of presence and equality are
keywords, and so are numbers and strings to compare, written as ``FIELD:DIGITS`` such that the
order of the digits is theirs. Ids are looked up by their hashes, so that none is too long.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np

from ragchat_retrieval.lexical import K1, B
from ragchat_retrieval.stores.manifest import Entry, Row, passage_text, read_passage
from ragchat_retrieval.stores.shadow import (
    TOKENS,
    AnyOf,
    Both,
    Clause,
    Compare,
    Either,
    Neither,
    StringOrder,
    digits_of,
    shadow,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ragchat_retrieval.stores.shadow import Comparison
    from ragchat_retrieval.values import Document, Passage

VECTOR: Final = "vector"
WORDS: Final = "words"

_ORDER = "o"
_NUMBERS = frozenset({"rev", "ord"})
_KEYS = {"pid": "passage", "did": "document"}
_BETWEEN = "\0"  # no term holds it
_LONGEST = 8_000  # characters of a term: 32,000 bytes, of which Lucene takes 32,766
_STEPS = 8
_DIGITS = 9
_TINY = float(np.finfo(np.float32).tiny)
_TERMS_OF_QUERY = 65_536  # `index.max_terms_count`
_CLAUSES = 500  # half of `indices.query.bool.max_clause_count`

_KEYWORD = {"type": "keyword"}
_KEPT = {"type": "keyword", "index": False, "doc_values": False}
_SHADOW = {"key": _KEYWORD, "document": _KEYWORD, "did": _KEPT, TOKENS: _KEYWORD, _ORDER: _KEYWORD}

RECORDS = {"key": _KEYWORD, "kind": _KEYWORD, "corpus": _KEYWORD, "record": _KEPT}
ENTRIES = {**_SHADOW, "rev": {"type": "long"}, "labels": _KEPT, "text": _KEPT}


def rows_index(dimension: int | None, typical: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the settings and the mapping of an index of rows.

    Args:
        dimension: Of the vectors, if there can be any.
        typical: The length of passages that its scores are made for, `grid` of the state's.
    """
    # BM25 without idf, which a search gives as a boost, because that of Lucene counts what was
    # deleted. Lucene rounds lengths down, which makes a score larger, never smaller.
    source = (
        "return query.boost * doc.freq / "
        f"(doc.freq + {K1 * (1 - B)!r} + {K1 * B / typical!r} * doc.length);"
    )
    settings: dict[str, Any] = {
        # Whoever writes rows refreshes them, and does so before anything names them.
        "refresh_interval": "-1",
        "similarity": {WORDS: {"type": "scripted", "script": {"source": source}}},
        "analysis": {
            "tokenizer": {
                WORDS: {
                    "type": "char_group",
                    "tokenize_on_chars": [_BETWEEN],
                    "max_token_length": _LONGEST,
                }
            },
            "analyzer": {WORDS: {"type": "custom", "tokenizer": WORDS}},
        },
    }
    fields = {
        **_SHADOW,
        "passage": _KEYWORD,
        "pid": _KEPT,
        "rev": {"type": "long"},
        "ord": {"type": "long"},
        "emb": {"type": "boolean"},
        "body": _KEPT,
        "exact": {"type": "binary"},
        WORDS: {"type": "text", "analyzer": WORDS, "similarity": WORDS, "index_options": "freqs"},
    }
    if dimension is not None:
        settings["knn"] = True
        method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}
        fields[VECTOR] = {"type": "knn_vector", "dimension": dimension, "method": method}
    return settings, fields


def grid(typical: float) -> float:
    """Returns a length on a grid, not below the given one and at most 9 % above.

    Each length makes a script of its own, of which OpenSearch compiles few in a minute.
    """
    return float(2.0 ** (math.ceil(math.log2(typical) * _STEPS) / _STEPS))


def key(*parts: object) -> str:
    """Returns the hash that stands for any ids."""
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def identified(id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document under an id, which is also a field that answers can be sorted by."""
    return {"_id": id, "key": id, **fields}


def removal(id: str) -> dict[str, str]:
    """Returns the action that removes a document."""
    return {"_op_type": "delete", "_id": id}


def row_document(row: Row) -> dict[str, Any]:
    """Returns the document of a row, which has its passage and terms."""
    assert row.passage is not None  # noqa: S101 - rows are written whole
    document = {
        "pid": row.passage_id,
        "passage": key(row.passage_id),
        "rev": row.stamp,
        "ord": row.ordinal,
        "emb": row.vector is not None,
        **_shadow(row.passage, row.document_id),
        WORDS: _BETWEEN.join(term for term, count in row.terms.items() for _ in range(count)),
        "body": passage_text(row.passage),
    }
    if row.vector is not None:
        document[VECTOR] = _shortened(row.vector)
        document["exact"] = b64encode(row.vector.astype("<f4").tobytes()).decode()
    return identified(key("row", row.passage_id, row.stamp), document)


def _shortened(vector: NDArray[np.float32]) -> list[float]:
    """Returns a vector in nine digits of its largest number.

    That is far below what scores lose in single precision, and half as much to write and to read.
    """
    places = _DIGITS - 1 - math.floor(math.log10(max(float(np.abs(vector).max()), _TINY)))
    shortened: list[float] = vector.astype(np.float64).round(places).tolist()
    return shortened


def row_fields(*, passages: bool = False, vectors: bool = False, terms: bool = False) -> list[str]:
    """Returns the fields that a row is read from, with what is asked for."""
    return [
        "pid",
        "did",
        "rev",
        "ord",
        "emb",
        *(["body"] if passages else []),
        *(["exact"] if vectors else []),
        *([WORDS] if terms else []),
    ]


def read_row(hit: Mapping[str, Any]) -> Row:
    """Returns the row of a hit, with what was read of it."""
    source = hit["_source"]
    exact, body, words = source.get("exact"), source.get("body"), source.get(WORDS)
    return Row(
        passage_id=source["pid"],
        document_id=source["did"],
        stamp=source["rev"],
        ordinal=source["ord"],
        embedded=source["emb"],
        passage=None if body is None else read_passage(body),
        vector=None if exact is None else np.frombuffer(b64decode(exact), "<f4"),
        terms=Counter(words.split(_BETWEEN)) if words else {},
    )


def entry_document(entry: Entry) -> dict[str, Any]:
    """Returns the document of a manifest entry."""
    document = entry.document
    fields = {
        "rev": entry.stamp,
        **_shadow(document, document.id),
        "labels": entry.labels(),
        "text": document.text,
    }
    return identified(key("entry", document.id), fields)


def read_entry(hit: Mapping[str, Any]) -> Entry:
    """Returns the entry of a hit, with its text if that was read."""
    source = hit["_source"]
    return Entry.read(source["labels"], source["rev"], source.get("text", ""))


def _shadow(item: Passage | Document, document_id: str) -> dict[str, Any]:
    given = shadow(item)
    order = [f"n.{name}:{_digits(number)}" for name, number in given["n"].items()]
    order += [f"s.{name}:{digits_of(chunks.values())}" for name, chunks in given["s"].items()]
    return {
        "did": document_id,
        "document": key(document_id),
        TOKENS: given[TOKENS],
        _ORDER: order,
    }


def _digits(number: float) -> str:
    """Returns a number as hexadecimal digits, ordered as the numbers."""
    bits = int.from_bytes(struct.pack(">d", number + 0.0))  # of the zeros, the positive one
    flipped = bits ^ (2**64 - 1 if bits >> 63 else 2**63)
    return f"{flipped:016x}"


# --- queries ---


def query_of(clause: Clause) -> dict[str, Any]:
    """Translates a clause."""
    made: dict[str, Any]
    match clause:
        case AnyOf(field, values):
            if field in _KEYS:
                field, values = _KEYS[field], tuple(map(key, values))
            parts = [
                {"terms": {field: values[at : at + _TERMS_OF_QUERY]}}
                for at in range(0, len(values), _TERMS_OF_QUERY)
            ]
            made = parts[0] if len(parts) == 1 else _any(parts)
        case Compare(field, op, number) if field in _NUMBERS:
            made = {"range": {field: {op: number}}}
        case Compare(field, op, number):
            made = _order(field, op, _digits(number))
        case StringOrder():
            made = _order(f"s.{clause.key}", clause.op, clause.digits)
        case Both(()):
            made = {"match_all": {}}
        case Both(clauses):
            made = {"bool": {"filter": [query_of(inner) for inner in clauses]}}
        case Either(clauses):
            made = _any([query_of(inner) for inner in clauses])
        case Neither(inner):
            made = {"bool": {"must_not": [query_of(inner)]}}
        case _:
            assert_never(clause)
    return made


def _order(field: str, op: Comparison, digits: str) -> dict[str, Any]:
    # ';' follows ':', so that the range ends with the tokens of the field.
    end = {"lt": f"{field};"} if op in {"gt", "gte"} else {"gte": f"{field}:"}
    return {"range": {_ORDER: {op: f"{field}:{digits}", **end}}}


def _any(queries: list[dict[str, Any]]) -> dict[str, Any]:
    if not queries:
        return {"match_none": {}}
    return {"bool": {"should": queries, "minimum_should_match": 1}}


def words_query(weights: Mapping[str, float], clause: Clause) -> dict[str, Any]:
    """Returns the query for the passages that hold one of the terms.

    No passage's score is below the sum of ``weight · saturation`` at the index's typical length.

    Args:
        weights: Of each term, idf included.
        clause: What else must hold.
    """
    strongest = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    terms: list[dict[str, Any]] = [
        {"term": {WORDS: {"value": term, "boost": weight}}} for term, weight in strongest[:_CLAUSES]
    ]
    if rest := dict(strongest[_CLAUSES:]):
        # A query may have so many clauses only: the others together are one, at their most.
        others = {"terms": {WORDS: [*rest]}}
        terms.append({"constant_score": {"filter": others, "boost": sum(rest.values())}})
    query = _any(terms)
    query["bool"]["filter"] = [query_of(clause)]
    return query


def near_query(vector: list[float], n: int, clause: Clause) -> dict[str, Any]:
    """Returns the query for the n nearest by the graph; scores are (1 + cosine)/2."""
    return {"knn": {VECTOR: {"vector": vector, "k": n, "filter": query_of(clause)}}}


def exact_query(vector: list[float], clause: Clause) -> dict[str, Any]:
    """Returns the query that compares all vectors; scores are (1 + cosine)/2."""
    script = {
        "source": "0.5 + 0.5 * cosineSimilarity(params.vector, doc[params.field])",
        "params": {"vector": vector, "field": VECTOR},
    }
    embedded = {"bool": {"filter": [{"term": {"emb": True}}, query_of(clause)]}}
    return {"script_score": {"query": embedded, "script": script}}
