"""The recipe: a chat request in, the same request with evidence out.

snapshot → gate → transform → retrieve → validate → augment → write back
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragchat.augment import Augmentation, AugmentContext, ContextualAugmenter, augmentation_of
from ragchat.budget import Allowance, RequestBudget
from ragchat.citations import CitationLedger
from ragchat.conversation import ConversationQuery, attachments
from ragchat.errors import InvalidAugmentation, InvalidCitations
from ragchat.prepared import PreparedRequest, Retrieval
from ragchat.readmission import readmitted
from ragchat.request import ChatRequest
from ragchat.tokens import counter_of
from ragchat.transforms.history import HistoryExpansionTransformer
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.foreign import facts_of, query_of, retrieved
from ragchat_retrieval.policy import Policy, Run, running
from ragchat_retrieval.speculation import Speculation
from ragchat_retrieval.stages import call_stage, check_listener
from ragchat_retrieval.text import clean_query
from ragchat_retrieval.values import Query, SearchResult, documents_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ragchat.augment import Augmenter
    from ragchat.gate import Gate
    from ragchat.prepared import Skipped
    from ragchat.transforms.base import ConversationTransformer
    from ragchat_retrieval.foreign import AnyRetriever
    from ragchat_retrieval.options import FilterLike
    from ragchat_retrieval.trace import StageEvent
    from ragchat_retrieval.values import Passage


class _Unset:
    """Stands for an option that was not given, where None is a value."""


_UNSET: Final = _Unset()

_MODEL_FREE: Final = HistoryExpansionTransformer()
"""Makes the query where a transformer fails, and the one that is searched ahead of a slow one."""


@dataclass(frozen=True, slots=True)
class Preparer:
    """Prepares chat requests with evidence. Immutable; safe for concurrent use if its stages are.

    Stages may be async or sync; sync ones run in worker threads.

    Raises:
        InvalidFilter: `scope` or `filter` is no filter.
        InvalidSetting: A stage or an option is of the wrong kind, or the listener is async.
    """

    retriever: AnyRetriever
    """An index's ``retriever(…)``, or any function of a query."""

    augmenter: Augmenter = field(default_factory=ContextualAugmenter, kw_only=True)
    """Writes the evidence into the user's message; `IdentityAugmenter` keeps the message."""

    query_transformer: ConversationTransformer | None = field(
        default_factory=HistoryExpansionTransformer, kw_only=True
    )
    """Brings the conversation into the query; None searches with the last turn as it is. One that
    fails and may be skipped is stood in for by `HistoryExpansionTransformer()`."""

    speculative: bool = field(default=False, kw_only=True)
    """Searches with the query of `HistoryExpansionTransformer()` while the transformer works, and
    merges what both queries find (`ragchat_retrieval.speculation`)."""

    gate: Gate | None = field(default=None, kw_only=True)
    """Decides whether to retrieve at all; None always retrieves."""

    budget: RequestBudget | None = field(default=None, kw_only=True)
    """Holds the whole request to the model's window; None leaves that to the augmenter's limit."""

    policy: Policy = field(default_factory=Policy, kw_only=True)
    """Deadline, timeouts, and which stages may be skipped."""

    scope: Filter = field(default_factory=Filter, kw_only=True)
    """The trusted boundary of what may be found, such as a tenant; always ANDed."""

    filter: Filter = field(default_factory=Filter, kw_only=True)
    """What the user asked to narrow to."""

    top_k: int | None = field(default=None, kw_only=True)
    """Most candidates; None leaves it to the retriever."""

    ledger: CitationLedger | None = field(default=None, kw_only=True)
    """Keeps citation numbers over the turns of a conversation; the next turn takes the one of
    ``prepared.retrieval``. None numbers each prompt from 1."""

    readmit: int = field(default=0, kw_only=True)
    """Most passages cited in earlier turns that are presented again after the new evidence, the
    latest first, in the budget, inside of scope, filter and the retriever's; what was deleted from
    an index since is not, and what was changed reads as it does now. Needs a ledger."""

    on_stage: Callable[[StageEvent], object] | None = field(default=None, kw_only=True)
    """Hears the start and the end of every stage."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", Filter.of(self.scope))
        object.__setattr__(self, "filter", Filter.of(self.filter))
        _check_kinds(self)

    def with_options(
        self,
        *,
        scope: FilterLike = None,
        filter: FilterLike | _Unset = _UNSET,
        top_k: int | _Unset | None = _UNSET,
        budget: RequestBudget | _Unset | None = _UNSET,
        ledger: CitationLedger | _Unset | None = _UNSET,
        deadline: float | _Unset | None = _UNSET,
        on_stage: Callable[[StageEvent], object] | _Unset | None = _UNSET,
    ) -> Preparer:
        """Returns a cheap copy with other options for one request; what is left out stays.

        Args:
            scope: Any form of a filter; ANDed with the present scope, which it can only narrow.
            filter: Any form of a filter; replaces the present one.
            top_k: Most candidates.
            budget: The window of this request's model.
            ledger: The conversation's numbers so far.
            deadline: Seconds for everything before the answer call; None is no limit.
            on_stage: Hears the start and the end of every stage.

        Raises:
            InvalidFilter: `scope` or `filter` is no filter.
            InvalidSetting: The deadline is not positive, or another option is of the wrong kind.
        """
        changed: dict[str, Any] = {
            name: value
            for name, value in (
                ("filter", filter),
                ("top_k", top_k),
                ("budget", budget),
                ("ledger", ledger),
                ("on_stage", on_stage),
            )
            if value is not _UNSET
        }
        if not isinstance(deadline, _Unset):
            changed["policy"] = self.policy.with_deadline(deadline)
        return replace(self, scope=self.scope & Filter.of(scope), **changed)

    async def prepare(self, request: object = None, /, **params: Any) -> PreparedRequest:
        """Retrieves evidence for the last user message and writes it into a copy of the request.

        Args:
            request: What ``chat.completions.create`` takes, as a mapping or a pydantic model.
            **params: The same as keyword arguments, ``messages`` among them.

        Raises:
            NoFinalUserMessage: The last message is not from the user.
            InvalidAugmentation: The message cannot take the new text.
            ContextBudgetExceeded: There is evidence, but none fits the budget; as `WindowExceeded`,
                the request by itself does not fit the window.
            ScopeViolation: The retriever returned something outside filter or scope.
            DeadlineExceeded: The time is used up.
            Exception: What a stage raised that the policy does not let be skipped, as it came.
        """
        snapshot = ChatRequest.snapshot(request, **params)
        run = Run(self.policy, on_stage=self.on_stage)
        with running(run), run.record.observed("prepare"):
            allowance = await _allowance(self.budget, snapshot, run)
            return await _Preparation(self, snapshot, run, allowance).prepared()


def _check_kinds(preparer: Preparer) -> None:
    for name in ("retriever", "augmenter", "query_transformer", "gate", "on_stage"):
        stage = getattr(preparer, name)
        optional = name not in {"retriever", "augmenter"}
        if not callable(stage) and not (optional and stage is None):
            hint = ", as index.retriever() is" if name == "retriever" else ""
            raise InvalidSetting(name, "must be callable" + (", or None" if optional else hint))
    check_listener("on_stage", preparer.on_stage)
    if type(preparer.speculative) is not bool:
        raise InvalidSetting("speculative", "must be True or False")
    if preparer.top_k is not None and type(preparer.top_k) is not int:
        raise InvalidSetting("top_k", "must be an integer, or None")
    for name, kind in (("budget", RequestBudget), ("ledger", CitationLedger)):
        if not isinstance(getattr(preparer, name), kind | None):
            raise InvalidSetting(name, f"must be a {kind.__name__}, or None")
    if not isinstance(preparer.policy, Policy):
        raise InvalidSetting("policy", "must be a Policy")
    if type(preparer.readmit) is not int or preparer.readmit < 0:
        raise InvalidSetting("readmit", "must be an integer, 0 or more")


async def _allowance(
    budget: RequestBudget | None, request: ChatRequest, run: Run
) -> Allowance | None:
    """Divides the window, before anything is spent on a request that does not fit it."""
    if budget is None:
        return None
    return await run.whole(
        "budget",
        lambda: asyncio.to_thread(budget.allowance, request),
        count=Allowance.counts,
    )


@dataclass(frozen=True, slots=True)
class _Preparation:
    """One request on its way: `prepared` is the recipe, and its steps follow in order."""

    preparer: Preparer
    request: ChatRequest
    run: Run
    allowance: Allowance | None

    async def prepared(self) -> PreparedRequest:
        if not clean_query(self.request.question):
            return await self._without_text()
        conversation = self._conversation()
        if not await self._gate(conversation):
            return await self._unchanged("gate")
        self._check_takes_text()
        found = await self._found(conversation)
        if found is None:
            return await self._unchanged("transform")
        augmentation = await self._augment(found)
        return self._written_back(augmentation, found)

    def _conversation(self) -> ConversationQuery:
        options, question = self.preparer, self.request.question
        query = Query(question, filter=options.filter, scope=options.scope, top_k=options.top_k)
        shown = attachments(self.request.active)
        return ConversationQuery(query, self.request.history, attachments=shown)

    async def _gate(self, conversation: ConversationQuery) -> bool:
        gate = self.preparer.gate
        if gate is None:
            return True

        async def decide() -> bool:
            wanted: object = await call_stage(gate, conversation)
            if not isinstance(wanted, bool | np.bool_):
                raise InvalidSetting("gate", "must return True or False")
            return bool(wanted)

        return await self.run.stage("gate", decide, fallback=lambda: True)

    def _check_takes_text(self) -> None:
        if getattr(self.preparer.augmenter, "rewrites", False):
            self.request.check_takes_text()

    async def _found(self, conversation: ConversationQuery) -> SearchResult | None:
        """Transforms and retrieves; None if there is nothing to retrieve this turn."""
        retriever, transformer = self.preparer.retriever, self.preparer.query_transformer
        if not self.preparer.speculative or transformer is None:
            query = await self._transform(conversation)
            if query is None:
                return None
            return await self._retrieve(query, partial(retrieved, retriever, query))
        guess = await _MODEL_FREE(conversation)
        async with Speculation(retriever, guess, self.run) as early:
            query = await self._transform(conversation)
            if query is None:
                return None
            return await self._retrieve(query, partial(early.found, query))

    async def _transform(self, conversation: ConversationQuery) -> Query | None:
        transformer, asked = self.preparer.query_transformer, conversation.query
        if transformer is None:
            return asked

        async def transform() -> Query | _Unset | None:
            query: object = await call_stage(transformer, conversation)
            return None if query is None else query_of(query, asked, stage="transform")

        query: Query | _Unset | None = await self.run.stage(
            "transform",
            transform,
            fallback=lambda: _UNSET,
            instead="history expansion" if conversation.history else "",
        )
        return await _MODEL_FREE(conversation) if isinstance(query, _Unset) else query

    async def _retrieve(
        self, query: Query, search: Callable[[], Awaitable[SearchResult]]
    ) -> SearchResult:
        return await self.run.whole(
            "retrieve",
            search,
            count=lambda found: {"candidates": len(found)},
            facts=facts_of(self.preparer.retriever, query),
            content=lambda found: {"documents": documents_of(found)},
        )

    async def _augment(self, found: SearchResult) -> Augmentation:
        augmenter, request, room = self.preparer.augmenter, self.request, self.allowance
        budget = self.preparer.budget
        context = AugmentContext(
            model=request.model,
            count_tokens=(counter_of if budget is None else budget.counter)(request.model),
            budget=None if room is None else room.evidence,
            ledger=self.preparer.ledger,
            earlier=await self._earlier(found),
        )

        async def augment() -> Augmentation:
            made: object = await call_stage(augmenter, request.question, found.candidates, context)
            augmentation = augmentation_of(made)
            if budget is not None and room is not None and (text := augmentation.text) is not None:
                await asyncio.to_thread(budget.check, request.question, text, room, request.model)
            return augmentation

        return await self.run.stage(
            "augment", augment, fallback=lambda: Augmentation(None), count=_counts
        )

    async def _earlier(self, found: SearchResult) -> tuple[Passage, ...]:
        """Returns what of the earlier turns is presented again, if it is still allowed to be."""
        options, ledger = self.preparer, self.preparer.ledger
        if ledger is None or not (ledger.cited and options.readmit):
            return ()
        bounds = options.filter & options.scope
        here = {candidate.passage.id for candidate in found}
        return await self.run.whole(
            "readmit",
            lambda: readmitted(ledger, options.readmit, options.retriever, bounds, besides=here),
            count=lambda passages: {"passages": len(passages)},
        )

    def _ledger_after(self, augmentation: Augmentation) -> CitationLedger | None:
        """Returns the next turn's ledger; numbers of another meaning are never let through."""
        ledger = self.preparer.ledger
        if ledger is None:
            return None
        try:
            return ledger.admit(augmentation.citations)
        except InvalidCitations as error:
            raise InvalidAugmentation(f"the augmenter's numbers: {error}") from None

    def _written_back(self, augmentation: Augmentation, found: SearchResult) -> PreparedRequest:
        request, asked, text = self.request, self.request.question, augmentation.text
        if self.allowance is not None:
            request = request.without(self.allowance.trimmed)
        if text is not None and text != asked:
            request = request.with_question(text)
        retrieval = Retrieval(
            candidates=found.candidates,
            citations=augmentation.citations,
            ledger=self._ledger_after(augmentation),
            budget=self.allowance,
            queries=found.queries,
            degraded=tuple(dict.fromkeys((*self.run.record.degraded, *found.degraded))),
            trace=self.run.record.trace(),
        )
        return PreparedRequest(request, asked, retrieval, budget=self.preparer.budget)

    async def _without_text(self) -> PreparedRequest:
        if not getattr(self.preparer.augmenter, "keeps_message", False):
            raise InvalidAugmentation("the final user message has no text to search for")
        return await self._unchanged("no text")

    async def _unchanged(self, skipped: Skipped) -> PreparedRequest:
        record, budget = self.run.record, self.preparer.budget
        request, room = self.request, self.allowance
        if budget is not None and room is not None and room.trimmed:
            # There is no evidence to make room for.
            request, room = await asyncio.to_thread(budget.held, request)
        retrieval = Retrieval(
            ledger=self.preparer.ledger,
            budget=room,
            skipped=skipped,
            degraded=tuple(record.degraded),
            trace=record.trace(),
        )
        return PreparedRequest(request, self.request.question, retrieval, budget=budget)


def _counts(augmentation: Augmentation) -> dict[str, int]:
    tokens = {} if augmentation.tokens is None else {"tokens": augmentation.tokens}
    return {"citations": len(augmentation.citations), **tokens}
