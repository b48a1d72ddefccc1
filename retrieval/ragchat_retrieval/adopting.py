"""What an index works with, and what it takes over from the corpus that it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from ragchat_retrieval.embedders.checks import known_dimension
from ragchat_retrieval.errors import InvalidIndexIdentity, InvalidSetting
from ragchat_retrieval.kinds import check_embedder, check_store
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, Analyzer
from ragchat_retrieval.ports import written

if TYPE_CHECKING:
    from ragchat_retrieval.ports import Embedder, Identity, Store, Written


class Adopting(ABC):
    """A store, an embedder and an analyser, the latter two as the corpus wants them.

    Args:
        store: Where everything is kept.
        embedder: Gives vectors; None searches by keywords alone.
        analyzer: The lexical analysis; None takes what the corpus was written with.
        successor: An embedder that changes places with `embedder` as soon as the corpus turns out
            to be written with it.
        identity: Replaces the derived identity.

    Raises:
        InvalidIndexIdentity: `identity` is blank.
        InvalidSetting: One of them is of another kind than it must be.
    """

    def __init__(
        self,
        store: Store,
        *,
        embedder: Embedder | None,
        analyzer: Analyzer | None,
        successor: Embedder | None,
        identity: str | None,
    ) -> None:
        if identity is not None and not identity.strip():
            raise InvalidIndexIdentity
        check_store("store", store)
        for name, given in (("embedder", embedder), ("successor", successor)):
            if given is not None:
                check_embedder(name, given)
        if not isinstance(analyzer, Analyzer | None):
            raise InvalidSetting("analyzer", f"must be an Analyzer, not {type(analyzer).__name__}")
        self.store = store
        self.embedder = embedder
        self.successor = successor
        self.analyzer = analyzer or DEFAULT_ANALYZER
        self._given_analyzer = analyzer
        self._identity_name = identity

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """What is written: embedding model, dimension and analyser, or the given name."""

    async def heir(self, other: Adopting) -> Identity:
        """Returns the identity under which this index writes what it takes over from another.

        An index without an analyser of its own takes the other's, and one without an embedder
        keeps the other's vectors, under the name of their model.
        """
        theirs, mine = await other._adopted(), await self._adopted()
        await self._learn()
        identity, named = self.identity, self._identity_name
        if theirs is None:
            return identity
        if self._given_analyzer is None and named is None and mine in {None, theirs}:
            self.analyzer = other.analyzer
            identity = replace(identity, analyzer=theirs.analyzer)
        if self.embedder is None and theirs.model is not None:
            identity = replace(identity, model=named or theirs.model, dimension=theirs.dimension)
        return identity

    async def _adopted(self) -> Identity | None:
        """Returns the stored identity, after taking over what follows from it."""
        stored = await self.store.identity()
        self._adopt(stored)
        return stored

    async def _told(self) -> Written:
        """Returns what the store tells of the corpus, after taking over what follows from it."""
        told = await written(self.store)
        self._adopt(told.identity)
        return told

    async def _learn(self) -> None:
        """Has an embedder that does not know its dimension yet ask its model; writing needs it."""
        if self.embedder is not None:
            await known_dimension(self.embedder)

    def _adopt(self, stored: Identity | None) -> None:
        """Takes over what follows from the stored identity.

        That is its analysis where none was given, and the successor if it is the corpus's embedder.
        """
        if stored is not None and self.successor is not None:
            current = None if self.embedder is None else self.embedder.model
            if stored.model == self.successor.model != current:
                self.embedder, self.successor = self.successor, self.embedder
        if self._given_analyzer is None and self._identity_name is None:
            wanted = DEFAULT_ANALYZER.name if stored is None else stored.analyzer
            if wanted != self.analyzer.name:
                self.analyzer = Analyzer.named(wanted) or self.analyzer
