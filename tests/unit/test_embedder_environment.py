"""The environment names the embedder, and no setting is ignored silently."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from ragchat_retrieval.embedders import (
    HashingEmbedder,
    LocalEmbedder,
    OllamaEmbedder,
    OpenAIEmbedder,
    embedder_from_env,
)
from ragchat_retrieval.embedders import environment as environment_module
from ragchat_retrieval.embedders.environment import detect_provider
from ragchat_retrieval.errors import InvalidSetting, MissingExtra


def from_env(**settings):
    """Calls `embedder_from_env` with RAGCHAT_EMBEDDING_… settings; upper-case ones as they are."""
    environ = {
        name if name.isupper() else f"RAGCHAT_EMBEDDING_{name.upper()}": value
        for name, value in settings.items()
    }
    return embedder_from_env(environ)


@pytest.fixture
def without_local(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    environment_module._say_once.cache_clear()
    yield
    environment_module._say_once.cache_clear()


def test_with_nothing_set_the_local_model_is_used_where_it_is_installed():
    assert isinstance(from_env(), LocalEmbedder)
    assert isinstance(from_env(provider=" ", url=""), LocalEmbedder)
    assert isinstance(
        from_env(OPENAI_API_KEY="sk-stray", OPENAI_BASE_URL="http://x"), LocalEmbedder
    )


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("RAGCHAT_EMBEDDING_PROVIDER", "hashing")
    assert isinstance(embedder_from_env(), HashingEmbedder)


def test_without_any_model_search_is_by_keyword_and_one_log_line_names_the_remedy(
    without_local, caplog
):
    with caplog.at_level(logging.INFO, "ragchat"):
        assert from_env() is None
        assert from_env() is None
    [record] = caplog.records
    assert 'pip install "ragchat-toolkit[local]"' in record.getMessage()


def test_none_is_silent(without_local, caplog):
    with caplog.at_level(logging.INFO, "ragchat"):
        assert from_env(provider="none") is None
    assert caplog.records == []


def test_a_local_model_asked_for_by_name_must_be_installed(without_local):
    with pytest.raises(MissingExtra):
        from_env(provider="local")


def test_the_provider_is_read_without_regard_to_case():
    assert isinstance(from_env(provider=" Local "), LocalEmbedder)
    assert isinstance(from_env(provider="local", model="all-MiniLM-L6-v2-int8"), LocalEmbedder)
    assert from_env(provider="HASHING").dimension == 256
    assert from_env(provider="hashing", model="hashing-64").dimension == 64


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("http://127.0.0.1:11434", "ollama"),
        ("http://gpu-box:11434/", "ollama"),
        ("https://models.example/api", "ollama"),
        ("https://models.example/api/embed", "ollama"),
        ("http://127.0.0.1:11434/v1", "openai"),
        ("http://127.0.0.1:8000/v1", "openai"),
        ("https://models.example", "openai"),
        ("https://models.example/apiary", "openai"),
        ("https://openrouter.example/api/v1", "openai"),
    ],
)
def test_the_kind_of_server_is_read_from_its_address(url, provider):
    assert detect_provider(url) == provider
    kinds = {"ollama": OllamaEmbedder, "openai": OpenAIEmbedder}
    embedder = from_env(url=url, model="m")
    assert type(embedder) is kinds[provider]
    assert embedder.model == "m"


def test_a_named_provider_wins_over_the_address():
    assert isinstance(
        from_env(url="http://127.0.0.1:8000", model="m", provider="ollama"), OllamaEmbedder
    )
    assert isinstance(
        from_env(url="http://127.0.0.1:11434", model="m", provider="openai"), OpenAIEmbedder
    )


def test_openai_by_name_has_a_default_model_and_takes_its_own_key():
    embedder = from_env(provider="openai", OPENAI_API_KEY="sk-x")
    assert (embedder.model, embedder.dimension) == ("text-embedding-3-small", 1536)
    assert from_env(provider="openai", api_key="sk-x", model="m").model == "m"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"provider": "cohere"}, "PROVIDER"),
        ({"url": "127.0.0.1:8000", "model": "m"}, "URL"),
        ({"url": "http://[::1", "model": "m"}, "URL"),
        ({"url": "http://x:port", "model": "m"}, "URL"),
        ({"url": "http://127.0.0.1:8000/v1"}, "MODEL"),
        ({"url": "http://127.0.0.1:11434"}, "MODEL"),
        ({"provider": "ollama"}, "MODEL"),
        ({"provider": "ollama", "model": "m", "api_key": "k"}, "API_KEY"),
        ({"provider": "openai"}, "API_KEY"),
        ({"model": "m"}, "MODEL"),
        ({"api_key": "k"}, "API_KEY"),
        ({"provider": "local", "model": "m"}, "MODEL"),
        ({"provider": "local", "url": "http://127.0.0.1"}, "URL"),
        ({"provider": "hashing", "model": "m"}, "MODEL"),
        ({"provider": "none", "url": "http://127.0.0.1"}, "URL"),
    ],
)
def test_a_setting_that_cannot_work_or_has_no_effect_is_named(settings, name):
    with pytest.raises(InvalidSetting) as caught:
        from_env(**settings)
    assert caught.value.name == f"RAGCHAT_EMBEDDING_{name}"


def test_choosing_an_embedder_loads_no_client_and_no_model():
    code = (
        "import sys; from ragchat_retrieval.embedders import embedder_from_env as e;"
        "p = 'RAGCHAT_EMBEDDING_'; e({}); e({p + 'URL': 'http://127.0.0.1:1', p + 'MODEL': 'm'});"
        "print({'openai', 'httpx2', 'onnxruntime', 'tokenizers', 'tiktoken'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
