"""The error tree of the chat layer; the core's part is drawn in `ragchat_retrieval.errors`.

    RagchatError
    └── ChatError                       everything the chat layer raises
        ├── InvalidRequest              a chat request that cannot be prepared as given
        │   └── NoFinalUserMessage      its last message is not from the user
        ├── InvalidAugmentation         the evidence cannot be written into the message
        │   └── UnsupportedMedia        a formatter met a passage that is no text
        ├── InvalidContextBudget        a limit or a count of tokens that makes no sense
        ├── ContextBudgetExceeded       no whole candidate fits the limit
        │   └── WindowExceeded          the request by itself leaves no room in the model's window
        ├── UnknownCitation             a marker that names no passage
        ├── InvalidCitations            stored citations that cannot be read
        ├── InvalidPrompt               a template that is missing, broken or lacks a variable
        ├── EmptyResponse               the answer call returned nothing at all
        ├── FailedResponse              the model's server told an error in the answer's place
        ├── ModelReplyError             a helper model's reply cannot be used
        │   ├── MissingModelOutput      no response, choice, message or text
        │   ├── EmptyModelOutput        the text is blank
        │   ├── TruncatedModelOutput    the model stopped at its length limit
        │   ├── OverlongModelOutput     the text is far longer than a question
        │   ├── FilteredModelOutput     the provider's content filter stopped it
        │   └── RefusedModelOutput      the model refused
        ├── MalformedVerdicts           a model's verdicts on claims are not one for each
        ├── EmptyExpansion              an expansion brought no usable variant
        └── InvalidExpansion            an expansion brought fewer variants than asked for

Every error carries its data as attributes. None carries content of documents, prompts or replies,
and none carries keys.
"""

from __future__ import annotations

from typing import ClassVar

from ragchat_retrieval.errors import RagchatError

_MARKER_LENGTH = 16


class ChatError(RagchatError):
    """Root of the errors of the chat layer."""


class InvalidRequest(ChatError, ValueError):
    """A chat request cannot be prepared as given."""


class NoFinalUserMessage(InvalidRequest):
    """The last message of a request is not from the user, so there is no active question."""

    def __init__(self, problem: str = "the last message must be from the user") -> None:
        super().__init__(problem)


class InvalidAugmentation(ChatError, ValueError):
    """The augmented text cannot be written into the final user message, or is blank."""


class UnsupportedMedia(InvalidAugmentation):
    """A formatter met a passage that holds no text it could render.

    Attributes:
        passage_id: The passage's id, where it is known.
    """

    def __init__(self, problem: str, *, passage_id: str | None = None) -> None:
        super().__init__(problem if passage_id is None else f"passage {passage_id!r}: {problem}")
        self.passage_id = passage_id


class InvalidContextBudget(ChatError, ValueError):
    """A token limit is negative or has no counter, or a counter returned no valid count."""


class ContextBudgetExceeded(ChatError):
    """There is evidence, but no whole candidate fits the token limit.

    Attributes:
        limit: The limit in tokens.
        smallest: Tokens of the least that was tried: the smallest block with one candidate, or with
            nothing found what would be said of that. None if none was measured.
    """

    def __init__(
        self, limit: int, *, smallest: int | None = None, problem: str | None = None
    ) -> None:
        need = "" if smallest is None else f"; the smallest needs {smallest}"
        super().__init__(problem or f"nothing fits a context of {limit} tokens{need}")
        self.limit = limit
        self.smallest = smallest


class WindowExceeded(ContextBudgetExceeded):
    """Messages, tools and the reserve for the answer are more than the model's window.

    Attributes:
        window: The window in tokens.
        messages: Tokens of the messages, after trimming.
        tools: Tokens of tools and response format.
        reserve: Tokens kept for the answer.
    """

    def __init__(self, window: int, *, messages: int, tools: int, reserve: int) -> None:
        super().__init__(
            window - messages - tools - reserve,
            problem=f"a window of {window} tokens does not hold messages of {messages},"
            f" tools of {tools} and a reserve of {reserve}",
        )
        self.window = window
        self.messages = messages
        self.tools = tools
        self.reserve = reserve


class UnknownCitation(ChatError, LookupError):
    """A marker names no passage of this prompt.

    Attributes:
        marker: The marker as given; cut after 16 characters, since it may come from a reply.
        known: How many passages there are; without a ledger, valid numbers are 1 … known.
    """

    def __init__(self, marker: str, known: int) -> None:
        short = marker if len(marker) <= _MARKER_LENGTH else marker[:_MARKER_LENGTH] + "…"
        super().__init__(f"{short!r} is no citation; there are {known}")
        self.marker = short
        self.known = known


class InvalidCitations(ChatError, ValueError):
    """Stored citations cannot be read: another version, or not their form."""


class InvalidPrompt(ChatError, ValueError):
    """A prompt template is missing, does not parse, or does not use a required variable.

    Attributes:
        name: The prompt's name.
        missing: The required variables that the template does not use.
    """

    def __init__(self, name: str, problem: str, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(f"prompt {name!r}: {problem}")
        self.name = name
        self.missing = missing


class EmptyResponse(ChatError):
    """The answer call returned None, or its stream ended before the first chunk."""

    def __init__(self, problem: str = "the chat model returned no response") -> None:
        super().__init__(problem)


class FailedResponse(ChatError):
    """The chat model's server told an error where a piece of the answer was due.

    Clients such as OpenAI's raise that by themselves; a function of one's own hands it on.
    """

    retryable = True

    def __init__(self) -> None:
        super().__init__("the chat model's server told an error in place of the answer")


class ModelReplyError(ChatError):
    """A helper model's reply cannot be used.

    Attributes:
        model: The model's name, where it is known.
    """

    problem: ClassVar[str] = "the reply cannot be used"

    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(self.problem if model is None else f"model {model!r}: {self.problem}")
        self.model = model


class MissingModelOutput(ModelReplyError):
    """The response is None, or holds no choice, no message or no text."""

    problem = "there is no response, choice, message or text"


class EmptyModelOutput(ModelReplyError):
    """The text is blank, or nothing is left of it without reasoning, fences and labels."""

    problem = "the text is blank"


class TruncatedModelOutput(ModelReplyError):
    """The model stopped at its length limit; a cut text is never used."""

    problem = "the text was cut at the length limit"


class OverlongModelOutput(ModelReplyError):
    """The text is far longer than the question it is made of, as of a model that ran wild."""

    problem = "the text is far too long"


class FilteredModelOutput(ModelReplyError):
    """The provider's content filter stopped the reply."""

    problem = "a content filter stopped the reply"


class RefusedModelOutput(ModelReplyError):
    """The model refused to answer."""

    problem = "the model refused"


class MalformedVerdicts(ChatError, ValueError):
    """A chat model's reply is not exactly one known verdict per claim.

    Names the fault (an index, a count), never the reply's content.
    """


class EmptyExpansion(ChatError):
    """An expansion brought no usable variant of the query."""

    def __init__(self, problem: str = "the reply holds no usable variant") -> None:
        super().__init__(problem)


class InvalidExpansion(ChatError):
    """An expansion brought fewer usable variants than asked for.

    Attributes:
        expected: How many were asked for.
        usable: How many there were.
    """

    def __init__(self, expected: int, usable: int) -> None:
        super().__init__(f"{usable} usable variants instead of {expected}")
        self.expected = expected
        self.usable = usable
