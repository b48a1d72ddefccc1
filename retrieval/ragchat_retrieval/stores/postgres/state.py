"""What the list of corpora says of one: read before everything, raised by every write."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragchat_retrieval.ports import Identity

if TYPE_CHECKING:
    from ragchat_retrieval.stores.postgres.sessions import Session


@dataclass(frozen=True, slots=True)
class CorpusState:
    """One row of table ``corpora``."""

    key: int
    revision: int = 0
    identity: Identity | None = None
    documents: int = 0
    passages: int = 0
    vectors: int = 0

    length: int = 0
    """Terms of all passages, repetitions included."""

    largest: float = 0.0
    """Upper bound of the norms of the vectors."""

    indexed: bool = False
    """Whether there is an HNSW index."""

    analyzed: int = 0
    """Passages when the planner last looked at the tables."""

    next_document: int = 1
    next_passage: int = 1
    next_term: int = 1
    """Numbers that were never given; none is given twice."""

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None without a model."""
        return self.identity.dimension if self.identity else None


_COLUMNS = (
    "documents",
    "passages",
    "vectors",
    "length",
    "largest",
    "indexed",
    "analyzed",
    "next_document",
    "next_passage",
    "next_term",
)


async def read_state(session: Session, schema: str, corpus: str) -> CorpusState | None:
    """Returns the state of a corpus; None if it was never written."""
    rows = await session.fetch(
        "SELECT key, revision, analyzer, model, dimension, "  # noqa: S608 - a checked name, constants
        f'{", ".join(_COLUMNS)} FROM "{schema}".corpora WHERE name = %s',
        [corpus],
    )
    if not rows:
        return None
    key, revision, analyzer, model, dimension, *rest = rows[0]
    identity = (
        None if analyzer is None else Identity(analyzer=analyzer, model=model, dimension=dimension)
    )
    return CorpusState(key, revision, identity, *rest)


async def first_revision(session: Session, schema: str) -> int:
    """Returns the revision of a corpus that was never written, or was dropped."""
    rows = await session.fetch(f'SELECT revision FROM "{schema}".about')  # noqa: S608 - a checked name
    return int(rows[0][0]) if rows else 0


async def create_state(session: Session, schema: str, corpus: str) -> CorpusState:
    """Adds a corpus to the list."""
    ((key, revision),) = await session.fetch(
        f'INSERT INTO "{schema}".corpora (name, revision) SELECT %s, revision '  # noqa: S608 - a checked name
        f'FROM "{schema}".about RETURNING key, revision',
        [corpus],
    )
    return CorpusState(key, revision)


async def drop_state(session: Session, schema: str, state: CorpusState) -> None:
    """Takes a corpus off the list.

    A later one of the name goes on counting, so that nothing derived passes for current.
    """
    await session.run(f'DELETE FROM "{schema}".corpora WHERE key = %s', [state.key])  # noqa: S608 - a checked name
    await session.run(
        f'UPDATE "{schema}".about SET revision = greatest(revision, %s)',  # noqa: S608 - a checked name
        [state.revision + 1],
    )


async def swap_names(session: Session, schema: str, names: tuple[str, str]) -> None:
    """Lets two corpora that are on the list change names."""
    # A name is unique at every moment; nobody chose this one.
    ways = [names[0], secrets.token_hex(16), names[1]]
    for source, target in ((0, 1), (2, 0), (1, 2)):
        await session.run(
            f'UPDATE "{schema}".corpora SET name = %s WHERE name = %s',  # noqa: S608 - a checked name
            [ways[target], ways[source]],
        )


async def write_state(session: Session, schema: str, state: CorpusState) -> None:
    """Keeps a state, with the revision that it has."""
    identity = state.identity
    assignments = ", ".join(f"{column} = %s" for column in _COLUMNS)
    await session.run(
        f'UPDATE "{schema}".corpora SET revision = %s, analyzer = %s, model = %s, dimension = %s, '  # noqa: S608 - a checked name, constants
        f"{assignments} WHERE key = %s",
        [
            state.revision,
            identity and identity.analyzer,
            identity and identity.model,
            identity and identity.dimension,
            *(getattr(state, column) for column in _COLUMNS),
            state.key,
        ],
    )
