"""`ChatModel`: a helper model is the ``create`` function that an application has already."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ragchat.access import checked_create, read
from ragchat.replies import reply_text
from ragchat.request import owned
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.policy import model_call
from ragchat_retrieval.retry import Retries, retried
from ragchat_retrieval.stages import call_stage

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ragchat.access import Foreign

_OURS = frozenset({"messages", "stream", "stream_options"})


@dataclass(frozen=True, slots=True, init=False)
class ChatModel:
    """A chat model for one-shot helper calls: rewriting, expanding, ranking.

    A call sends the model's name, one user message and the parameters given here, and nothing else:
    no temperature, no limit, none of the user's tools. It is never streamed.

    Args:
        create: The ``chat.completions.create`` of any OpenAI-compatible client, sync or async, or a
            function with its keyword signature.
        model: The model's name.
        structured: Sends a JSON schema as ``response_format`` where a task has one. Off by default,
            since not every server knows it; prompts ask for JSON either way.
        retries: How often a call that failed on 408, 409, 429, 5xx or the connection is repeated,
            or a whole rule. Never by default, since clients have retries of their own.
        prompts: A folder whose templates replace the packaged ones of every stage that uses this
            model, unless the stage has a prompt of its own; those that it lacks stay ours.
        **params: Sent with every call, as named: ``temperature``, ``max_completion_tokens``, …
            Containers and pydantic models are copied, other objects, such as LiteLLM's ``client``,
            kept by reference.

    Raises:
        InvalidSetting: `create` is not callable, the name is blank, `retries` is no number of
            tries, `prompts` is no folder, or a parameter is one that only the call itself can set
            (``messages``, ``stream``).
    """

    create: Callable[..., Foreign]
    model: str
    structured: bool
    retries: Retries
    prompts: Path | None
    params: Mapping[str, Any] = field(hash=False)

    def __init__(
        self,
        create: Callable[..., Foreign],
        *,
        model: str,
        structured: bool = False,
        retries: int | Retries = 0,
        prompts: str | os.PathLike[str] | None = None,
        **params: Any,
    ) -> None:
        checked_create(create)
        name: object = model
        if not isinstance(name, str) or not name.strip():
            raise InvalidSetting("model", "must be a name that is not blank")
        if not isinstance(retries, Retries):
            if type(retries) is not int or retries < 0:
                raise InvalidSetting("retries", "must be an integer, 0 or more, or Retries")
            retries = Retries(tries=retries + 1)
        folder = None if prompts is None else Path(prompts)
        if folder is not None and not folder.is_dir():
            raise InvalidSetting("prompts", "must be a folder")
        if refused := sorted(_OURS & params.keys()):
            raise InvalidSetting(refused[0], "is set by the call itself")
        put = object.__setattr__
        put(self, "create", create)
        put(self, "model", model)
        put(self, "structured", structured)
        put(self, "retries", retries)
        put(self, "prompts", folder)
        put(self, "params", MappingProxyType(owned(params)))

    async def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Sends one user message and returns the text of the reply, without reasoning.

        Args:
            prompt: The message.
            schema: JSON schema of the reply, with a ``title``; sent with ``structured`` only.

        Raises:
            ModelReplyError: The reply is missing, blank, cut, filtered or refused.
            Exception: What `create` raised, itself.
        """

        async def attempt() -> Foreign:
            return await call_stage(self.create, **self._kwargs(prompt, schema))

        with model_call("chat", self.model, provider="openai") as call:
            response = await retried(attempt, self.retries)
            usage = read(response, "usage")
            call.add(
                input_tokens=read(usage, "prompt_tokens"),
                output_tokens=read(usage, "completion_tokens"),
            )
            text = reply_text(response, model=self.model)
            if call.captures:
                call.content = {"input": prompt, "output": text}
            return text

    def _kwargs(self, prompt: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        kwargs: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
        }
        if self.structured and schema is not None:
            kwargs["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": schema["title"],
                    "strict": True,
                    "schema": copy.deepcopy(dict(schema)),
                },
            }
        return {**kwargs, **owned(self.params)}
