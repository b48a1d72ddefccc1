"""The snapshot of a chat request: whatever ``chat.completions.create`` takes, owned by us.

Containers and pydantic models are deep-copied; any other object (a timeout, a client option) is
kept by reference. So the caller's objects are never mutated, and later changes to them have no
effect. In messages and tools, which the SDK types as iterables at every level, tuples, generators
and the like are read once, into lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from ragchat.access import Foreign, read
from ragchat.errors import InvalidAugmentation, InvalidRequest, NoFinalUserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

_LISTS = frozenset({"messages", "tools"})
"""Parameters in which every iterable becomes a list."""

_ATOMS = (str, int, float, type(None))
"""Most of what a request is made of; told before anything that may need a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class ChatRequest:
    """An immutable chat request whose active turn is a user message.

    Made by `snapshot`. Everything that it hands out is a fresh copy.
    """

    _params: Mapping[str, Any] = field(repr=False)
    """The keyword arguments; ``messages`` is a list."""

    _turn: int
    """Index of the active user message; only tool rounds may follow it."""

    @classmethod
    def snapshot(cls, request: object = None, /, **params: Any) -> ChatRequest:
        """Copies a request.

        Args:
            request: The keyword arguments as a mapping or a pydantic model, or another
                `ChatRequest`.
            **params: Keyword arguments; they win over those in `request`.

        Raises:
            InvalidRequest: There are no messages, they are no sequence of messages, or something is
                nested without end.
            NoFinalUserMessage: The last message is not from the user.
        """
        given = {**_mapping(request), **params}
        copied = {name: _copied(value, lists=name in _LISTS) for name, value in given.items()}
        messages = _checked(copied.get("messages"), "messages")
        if not messages or read(messages[-1], "role") != "user":
            raise NoFinalUserMessage
        return cls(copied, len(messages) - 1)

    @property
    def model(self) -> str | None:
        """Name of the model that will answer, where the request says."""
        model = self._params.get("model")
        return model if isinstance(model, str) else None

    @property
    def question(self) -> str:
        """The text parts of the active user message, joined by newlines; empty without any."""
        content = read(self._active, "content")
        if isinstance(content, str):
            return content
        return "\n".join(read(part, "text") for part in _text_parts(content))

    @property
    def history(self) -> tuple[Mapping[str, Any], ...]:
        """Copies of all messages before the active one; objects among them as mappings."""
        return tuple(as_mapping(message) for message in self._messages[: self._turn])

    @property
    def active(self) -> Mapping[str, Any]:
        """A copy of the active user message, as a mapping."""
        return as_mapping(self._active)

    def check_takes_text(self) -> None:
        """Checks that `with_question` can write: the message is a string or has one text part.

        Raises:
            InvalidAugmentation: The active message has no text part, or several.
        """
        content = read(self._active, "content")
        if not isinstance(content, str) and (found := len(_text_parts(content))) != 1:
            raise InvalidAugmentation(f"the final user message has {found} text parts to replace")

    def kwargs(self) -> dict[str, Any]:
        """Returns the keyword arguments for ``create``, copied anew each time."""
        return {name: owned(value) for name, value in self._params.items()}

    def with_question(self, text: str) -> ChatRequest:
        """Returns a copy whose active message says `text`.

        The string or the one text part is replaced where it stands. Every other part and every
        other message keeps its value and position.

        Raises:
            InvalidAugmentation: The active message has no text part, or several.
        """
        self.check_takes_text()
        content: Any = text
        parts = read(self._active, "content")
        if not isinstance(parts, str):
            (old,) = _text_parts(parts)
            content = [_with_member(p, "text", text) if p is old else p for p in parts]
        messages = list(self._messages)
        messages[self._turn] = _with_member(self._active, "content", content)
        return ChatRequest({**self._params, "messages": messages}, self._turn)

    def without(self, positions: Iterable[int]) -> ChatRequest:
        """Returns a copy without the messages at these positions; all before the active one."""
        left_out = {position for position in positions if position < self._turn}
        kept = [m for position, m in enumerate(self._messages) if position not in left_out]
        return ChatRequest({**self._params, "messages": kept}, self._turn - len(left_out))

    def with_messages(self, extra: Iterable[object]) -> ChatRequest:
        """Returns a copy with messages appended, such as a tool call and its result.

        Raises:
            InvalidRequest: `extra` is no sequence of messages, or nested without end.
        """
        added: object = _copied(extra, lists=True)
        messages = [*self._messages, *_checked(added, "extra messages")]
        return ChatRequest({**self._params, "messages": messages}, self._turn)

    @property
    def _messages(self) -> Sequence[object]:
        messages: Sequence[object] = self._params["messages"]
        return messages

    @property
    def _active(self) -> object:
        return self._messages[self._turn]


def owned(value: T, *, lists: bool = False) -> T:
    """Returns a deep copy of containers and pydantic models; any other object is returned itself.

    Mappings become dicts with their order kept, so the JSON of a copy is that of the original.

    Args:
        value: Anything.
        lists: Whether every other iterable in it becomes a list, iterators being read to their end.
    """
    copied: Any = value
    if isinstance(value, _ATOMS):
        pass
    elif isinstance(value, (dict, Mapping)):  # a plain dict is told much faster than a Mapping
        copied = {
            # Most fields hold a text, which saves as many calls.
            key: inner if type(inner) is str else owned(inner, lists=lists)
            for key, inner in value.items()
        }
    elif isinstance(value, BaseModel):
        copied = value.model_copy(deep=True)
    elif isinstance(value, list) or (lists and _is_listable(value)):
        copied = [owned(inner, lists=lists) for inner in value]  # type: ignore[attr-defined]
    elif type(value) in (tuple, set, frozenset):
        copied = type(value)(owned(inner) for inner in value)  # type: ignore[attr-defined, call-arg]
    return copied  # type: ignore[no-any-return]


def _copied(value: T, *, lists: bool) -> T:
    """Returns what `owned` does of a value that anybody may have made.

    Raises:
        InvalidRequest: It holds itself, or is nested too deeply for this interpreter.
    """
    try:
        return owned(value, lists=lists)
    except RecursionError:
        raise InvalidRequest("a request must not be nested so deeply") from None


def as_mapping(message: object) -> Mapping[str, Any]:
    """Returns a copy of a message as a mapping.

    Raises:
        InvalidRequest: It is neither a mapping nor an object with ``model_dump``.
    """
    if isinstance(message, (dict, Mapping)):
        return owned(message)
    if isinstance(message, BaseModel):
        return message.model_dump(warnings=False)
    dump = getattr(message, "model_dump", None)
    dumped: Foreign = dump() if callable(dump) else None
    if not isinstance(dumped, Mapping):
        raise InvalidRequest(f"a {type(message).__name__} is no message: neither mapping nor model")
    return owned(dumped)


def _mapping(request: object) -> Mapping[str, Any]:
    if request is None:
        return {}
    if isinstance(request, ChatRequest):
        return request._params  # noqa: SLF001 - one of our own
    if isinstance(request, BaseModel):
        return {name: getattr(request, name) for name in sorted(request.model_fields_set)}
    if not isinstance(request, Mapping) or not all(isinstance(key, str) for key in request):
        raise InvalidRequest("a request is a mapping, or keyword arguments such as messages=[…]")
    return request


def _is_listable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray)


def _checked(messages: object, name: str) -> list[object]:
    if not isinstance(messages, list):
        raise InvalidRequest(f"{name}: a list of messages is needed")
    for position, message in enumerate(messages):
        if not isinstance(read(message, "role"), str):
            raise InvalidRequest(f"{name}[{position}] has no role")
    return messages


def _text_parts(content: object) -> list[object]:
    if not isinstance(content, list):
        return []
    return [
        part
        for part in content
        if read(part, "type") == "text" and isinstance(read(part, "text"), str)
    ]


def _with_member(item: object, name: str, value: object) -> object:
    if isinstance(item, Mapping):
        return {**item, name: value}
    if isinstance(item, BaseModel) and name in (type(item).model_fields | (item.model_extra or {})):
        return item.model_copy(update={name: value})
    problem = f"the text of a {type(item).__name__} cannot be replaced"
    raise InvalidRequest(f"{problem}; messages are what chat.completions.create takes")
