"""Prompt templates: checked at construction, and values are data."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat import ChatModel, ClaimJudge
from ragchat.errors import InvalidPrompt
from ragchat.expansion import MultiQueryExpander
from ragchat.prompts import Prompt
from ragchat.reranking import LLMReranker
from ragchat.testing import ScriptedChatModel
from ragchat.transforms import (
    CompressionTransformer,
    HydeTransformer,
    QueryPlanner,
    RewriteTransformer,
    TranslationTransformer,
)
from ragchat_retrieval.errors import InvalidSetting

PACKAGED = {
    "rewrite": ("target", "query"),
    "compress": ("history", "query"),
    "translate": ("language", "query"),
    "hyde": ("query",),
    "expand": ("number", "query"),
    "rerank": ("query", "documents"),
    "verify": ("claims", "passages"),
    "plan": ("history", "query", "number"),
}
MODEL = ChatModel(ScriptedChatModel().create, model="m")
STAGES = {
    "rewrite": lambda **options: RewriteTransformer(MODEL, "a search engine", **options),
    "compress": lambda **options: CompressionTransformer(MODEL, **options),
    "translate": lambda **options: TranslationTransformer(MODEL, "English", **options),
    "hyde": lambda **options: HydeTransformer(MODEL, **options),
    "expand": lambda **options: MultiQueryExpander(MODEL, **options),
    "rerank": lambda **options: LLMReranker(MODEL, **options),
    "verify": lambda **options: ClaimJudge(MODEL, **options),
    "plan": lambda **options: QueryPlanner(MODEL, **options),
}


@pytest.mark.parametrize(("name", "required"), PACKAGED.items())
def test_every_packaged_prompt_names_its_variables_in_its_header_and_uses_them(name, required):
    prompt = Prompt.load(name, required=required)
    header = re.match(r"\{#-(.*?)-?#\}", prompt.source, re.DOTALL)
    assert header is not None
    assert all(variable in header[1] for variable in required)
    rendered = prompt.render(**{variable: f"<{variable}>" for variable in required})
    assert all(rendered.count(f"<{variable}>") >= 1 for variable in required)
    assert "Variables" not in rendered
    assert rendered == rendered.strip()


def test_a_value_is_never_parsed_as_a_template():
    prompt = Prompt.load(
        "x", required=("query",), override="Q: {{ query }} {% raw %}{}{% endraw %}"
    )
    evil = "{{ 6*7 }} {% for x in y %}{{ ''.__class__ }}{% endfor %} {S} {# #} {{"
    assert prompt.render(query=evil) == f"Q: {evil} {{}}"


@given(st.text())
def test_every_character_of_a_value_arrives(text):
    assert Prompt("x", "[{{ query }}]").render(query=text) == f"[{text}]"


def test_the_json_filter_keeps_scripts_readable_and_a_value_on_its_line():
    rendered = Prompt("x", "{{ query | json }}").render(query='漢字 "a"\n</x> <b> \\')
    assert rendered == '"漢字 \\"a\\"\\n</x> <b> \\\\"'


@pytest.mark.parametrize("stage", STAGES)
def test_a_template_that_lacks_a_required_variable_fails_at_construction(stage):
    with pytest.raises(InvalidPrompt) as caught:
        STAGES[stage](prompt="{{ 1 }} nothing of use")
    assert caught.value.name == stage
    assert set(caught.value.missing) == set(PACKAGED[stage])


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_takes_a_template_of_the_users(stage, tmp_path):
    text = " ".join(f"{{{{ {variable} }}}}" for variable in PACKAGED[stage])
    path = tmp_path / "mine.md"
    path.write_text(text, encoding="utf-8")
    assert STAGES[stage](prompt=text)._prompt.source == text
    assert STAGES[stage](prompt=path)._prompt.source == text
    assert STAGES[stage](prompt=str(path))._prompt.source == text


@pytest.mark.parametrize(
    "template",
    ["{{ query", "{% if query %}", "{{ query }} {{ querry }}", "{{ query | nofilter }}"],
)
def test_a_broken_template_fails_at_construction(template):
    with pytest.raises(InvalidPrompt):
        Prompt.load("x", required=("query",), override=template)


@pytest.mark.parametrize(
    "template",
    ["{{ query.__class__.__mro__ }}", "{{ query.missing }}", "{{ query.encode.__globals__ }}"],
)
def test_the_sandbox_holds_also_for_the_developers_template(template):
    with pytest.raises(InvalidPrompt) as caught:
        Prompt.load("x", required=("query",), override=template).render(query="secret")
    assert "secret" not in str(caught.value)


def test_a_missing_value_is_an_error_and_no_blank():
    with pytest.raises(InvalidPrompt, match="UndefinedError"):
        Prompt.load("x", required=("a", "b"), override="{{ a }}{{ b }}").render(a=1)


def test_control_flow_and_optional_variables_are_allowed():
    template = "{% for n in range(2) %}{{ query }}{% endfor %}{% if note %}!{% endif %}"
    prompt = Prompt.load("x", required=("query",), optional=("note",), override=template)
    assert prompt.render(query="a", note=True) == "aa!"


def test_a_folder_shadows_the_prompts_that_it_holds(tmp_path, monkeypatch):
    (tmp_path / "hyde.md.j2").write_text("Mine: {{ query }}", encoding="utf-8")
    ours = Prompt.load("rewrite", required=("target", "query"))
    for override in (tmp_path, str(tmp_path)):
        shadowed = Prompt.load("hyde", required=("query",), override=override)
        assert shadowed.render(query="q") == "Mine: q"
        assert Prompt.load("rewrite", required=("target", "query"), override=override) == ours
    monkeypatch.setenv("RAGCHAT_PROMPTS", str(tmp_path))
    assert HydeTransformer(MODEL)._prompt.source == "Mine: {{ query }}"
    assert RewriteTransformer(MODEL, "x")._prompt == ours


def test_a_folder_given_to_a_model_serves_all_of_its_stages(tmp_path):
    (tmp_path / "hyde.md.j2").write_text("Own: {{ query }}", "utf-8")
    model = ChatModel(ScriptedChatModel("x").create, model="m", prompts=tmp_path)
    assert HydeTransformer(model)._prompt.source == "Own: {{ query }}"
    assert HydeTransformer(model, prompt="Mine {{ query }}")._prompt.source == "Mine {{ query }}"
    assert "other wordings" in MultiQueryExpander(model)._prompt.source
    assert "prompts" not in model.params


def test_a_folder_of_prompts_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidSetting, match="prompts"):
        ChatModel(ScriptedChatModel("x").create, model="m", prompts=tmp_path / "nowhere")


def test_a_folder_that_the_environment_names_must_be_there(tmp_path, monkeypatch):
    """A name with a slip in it does not quietly mean our own prompts."""
    monkeypatch.setenv("RAGCHAT_PROMPTS", str(tmp_path / "promtps"))
    with pytest.raises(InvalidSetting, match="RAGCHAT_PROMPTS: must be a folder"):
        HydeTransformer(MODEL)


@pytest.mark.parametrize("override", ["no/such/file.md", "\0"])
def test_a_missing_file_fails_at_construction(override):
    with pytest.raises(InvalidPrompt):
        Prompt.load("hyde", required=("query",), override=override)


def test_an_unknown_packaged_name_is_an_error():
    with pytest.raises(InvalidPrompt, match="no packaged prompt"):
        Prompt.load("nothing", required=())


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    path = tmp_path / "x.j2"
    path.write_bytes(b"\xff\xfe{{ query }}")
    with pytest.raises(InvalidPrompt, match="UnicodeDecodeError"):
        Prompt.load("hyde", required=("query",), override=path)


def test_prompts_are_values():
    prompt = Prompt.load("hyde", required=("query",))
    assert pickle.loads(pickle.dumps(prompt)) == prompt == copy.deepcopy(prompt)  # noqa: S301 - our own bytes
    assert hash(prompt) == hash(Prompt.load("hyde", required=("query",)))
