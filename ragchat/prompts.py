"""Prompt templates: one file per model task, checked before the first request.

Only the developer's template is ever parsed. Values go in as data: a question that spells
``{{ 6*7 }}`` reaches the model as these characters.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import jinja2
import jinja2.meta
import jinja2.sandbox

from ragchat.errors import InvalidPrompt
from ragchat.marks import fenced
from ragchat_retrieval.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Collection

    from ragchat.models import ChatModel

PromptOverride: TypeAlias = str | os.PathLike[str]
"""Replaces a packaged prompt: a template as text, the path of one, or a folder that holds files of
the packaged names; those that it lacks stay ours. A string with ``{{`` or ``{%`` is text, else a
path."""

FOLDER_VARIABLE = "RAGCHAT_PROMPTS"
"""Environment variable that names a folder which shadows the packaged prompts of every stage."""

_SUFFIX = ".md.j2"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A checked template."""

    name: str
    source: str
    """The template's text."""

    @classmethod
    def load(
        cls,
        name: str,
        *,
        required: Collection[str],
        optional: Collection[str] = (),
        override: PromptOverride | None = None,
    ) -> Prompt:
        """Loads a prompt and checks the variables that it uses.

        Args:
            name: The packaged file's name without its suffix ``.md.j2``.
            required: Variables that the template must use.
            optional: Further variables that it may use.
            override: What replaces the packaged template.

        Raises:
            InvalidPrompt: There is no such file, the template does not parse, does not use a
                required variable, or uses one that nobody gives it.
            InvalidSetting: The environment names a folder of prompts that is none.
        """
        prompt = cls(name, _source(name, override))
        used = _variables(name, prompt.source)
        if missing := tuple(sorted(set(required) - used)):
            raise InvalidPrompt(name, f"must use {', '.join(missing)}", missing=missing)
        if unknown := sorted(used - set(required) - set(optional)):
            raise InvalidPrompt(name, f"uses unknown variables: {', '.join(unknown)}")
        return prompt

    def render(self, **values: object) -> str:
        """Returns the prompt with `values` written into it, each as it is.

        Two filters write a value so that it cannot leave its place: ``json`` as JSON, and
        ``fenced`` as it is, between two lines with a mark that does not occur in it.

        Raises:
            InvalidPrompt: The template asks for something that its values do not have or cannot
                do, or that the sandbox forbids.
        """
        try:
            return _template(self.source).render(values)
        except Exception as error:  # noqa: BLE001 - a template can raise anything: {{ query + 1 }}
            raise InvalidPrompt(self.name, f"cannot be rendered ({type(error).__name__})") from None


def prompt_for(
    model: ChatModel, name: str, override: PromptOverride | None, *, required: Collection[str]
) -> Prompt:
    """Loads the prompt of a stage that asks a chat model: its own, the model's, or else ours.

    Args:
        model: The stage's model.
        name: As for `Prompt.load`, and so is `required`.
        override: The stage's own prompt.
        required: Variables that the template must use.

    Raises:
        InvalidSetting: `model` is no `ChatModel`, as a client and its ``create`` are none; or as
            for `Prompt.load`.
        InvalidPrompt: As for `Prompt.load`.
    """
    if not callable(getattr(model, "complete", None)):
        raise InvalidSetting("model", "must be a ChatModel(create, model=…)")
    return Prompt.load(name, required=required, override=override or model.prompts)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        autoescape=False,  # prompts are no HTML, and escaping would change the data
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    as_json = json.JSONEncoder(ensure_ascii=False).encode
    environment.filters |= {"json": as_json, "fenced": fenced}
    return environment


@functools.lru_cache(maxsize=128)
def _template(source: str) -> jinja2.Template:
    template = _environment().from_string(source)
    # A chain of two mappings, which would be copied name by name for each text that is rendered.
    template.globals = dict(template.globals)
    return template


def _variables(name: str, source: str) -> set[str]:
    environment = _environment()
    try:
        used = jinja2.meta.find_undeclared_variables(environment.parse(source))
        _template(source)
    except jinja2.TemplateSyntaxError as error:
        raise InvalidPrompt(name, f"line {error.lineno} does not parse") from None
    return used - environment.globals.keys()


def _source(name: str, override: PromptOverride | None) -> str:
    if isinstance(override, str) and ("{{" in override or "{%" in override):
        return override
    if override is not None:
        path = Path(override)
        if not path.is_dir():
            return _read(name, path)
        if (own := path / f"{name}{_SUFFIX}").is_file():
            return _read(name, own)
    elif folder := os.environ.get(FOLDER_VARIABLE):
        if not Path(folder).is_dir():
            raise InvalidSetting(FOLDER_VARIABLE, "must be a folder")
        if (own := Path(folder) / f"{name}{_SUFFIX}").is_file():
            return _read(name, own)
    return _packaged(name)


def _read(name: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidPrompt(name, f"{path} cannot be read ({type(error).__name__})") from None


@functools.cache
def _packaged(name: str) -> str:
    packaged = resources.files("ragchat") / "_prompts" / f"{name}{_SUFFIX}"
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # In a checkout the prompts stand beside pyproject.toml. An installed package never looks there:
    # a folder called `prompts` next to it is somebody else's.
    checkout = Path(__file__).parent.parent
    path = checkout / "prompts" / f"{name}{_SUFFIX}"
    if (checkout / "pyproject.toml").is_file() and path.is_file():
        return path.read_text(encoding="utf-8")
    raise InvalidPrompt(name, "there is no packaged prompt of that name")
