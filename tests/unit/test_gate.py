"""`RetrievalGate`: small talk in a dozen languages needs no retrieval; all else does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat import Preparer
from ragchat.augment import IdentityAugmenter
from ragchat.conversation import ConversationQuery
from ragchat.gate import RetrievalGate
from ragchat.testing import tool_call
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.values import Query

gate = RetrievalGate()
ASKED = {"role": "user", "content": "How long is the guarantee?"}
ANSWERED = {"role": "assistant", "content": "Two years [1]."}
OFFERED = {"role": "assistant", "content": "Two years [1].\nShall I look up the prices?"}


def retrieves(text, *history, **options):
    return gate.retrieves(ConversationQuery(Query(text), history, **options))


@pytest.mark.parametrize(
    "text",
    [
        "Hi!",
        "hello there",
        "Good morning :)",
        "Thanks!!",
        "thank you so much",
        "THANK YOU, bye.",
        "Hi, thanks a lot!",
        "No, thanks.",
        "Danke schön!",
        "Danke schon",
        "Vielen Dank, tschüss",
        "Merci beaucoup",
        "À bientôt !",
        "¡Muchas gracias!",
        "Grazie mille",
        "Obrigada",
        "Dank je wel",
        "Dziękuję bardzo",
        "Спасибо большое!",
        "Teşekkür ederim",
        "شكرا جزيلا",
        "धन्यवाद",
        "谢谢你！",
        "你好，谢谢",
        "好的谢谢",
        "ありがとうございます。",
        "감사합니다",
        "ขอบคุณครับ",
        "thanks 👍🏽",
        "❤️",
        "👍",
    ],
)
def test_small_talk_needs_no_retrieval(text):
    assert not retrieves(text)
    assert not retrieves(text, ASKED, ANSWERED)


@pytest.mark.parametrize(
    "text", ["ok", "Great, thanks", "Got it.", "alles klar", "好的", "👌", "Perfect!"]
)
def test_an_acknowledgement_is_let_go_unless_it_takes_up_an_offer(text):
    assert not retrieves(text, ASKED, ANSWERED)
    assert retrieves(text, ASKED, OFFERED)
    assert retrieves(text, ASKED, {"role": "assistant", "content": "価格も調べましょうか。"})


@pytest.mark.parametrize("text", ["Thanks!", "No, thanks", "bye", "hello"])
def test_a_courtesy_is_let_go_even_after_an_offer(text):
    assert not retrieves(text, ASKED, OFFERED)


def test_a_question_further_up_in_the_answer_is_no_offer():
    answer = {"role": "assistant", "content": "How long, you ask? It is this:\nTwo years [1]."}
    assert not retrieves("ok", ASKED, answer)


@pytest.mark.parametrize(
    "text",
    [
        "Thanks?",
        "ok?",
        "ok？",
        "شكرا؟",
        "yes",
        "no",
        "sure",
        "please",
        "go on",
        "more",
        "why",
        "thanks, and the price",
        "hello world",
        "thank you letter",
        "bye law",
        "hi res",
        "goods",
        "ok 2",
        "hello.py",
        "thanks.md",
        "ok_thanks",
        "HELLO()",
        "#thanks",
        "thanks/bye",
        "thanks\x00ok?",
        "danke für die Auskunft über die Garantie",
        "谢谢，价格",
        "再见的意思",
        "好吃",
        "🍕",
        "thanks 🍕",
        "…",
        "thanks thanks thanks thanks thanks thanks thanks",
        "thanks " * 40,
    ],
)
def test_when_unsure_it_retrieves(text):
    assert retrieves(text, ASKED, ANSWERED)


def test_a_user_who_goes_on_before_an_answer_may_be_completing_a_question():
    assert retrieves("thanks", ASKED)
    called = {"role": "assistant", "content": None, "tool_calls": [tool_call("find")]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Two years."}
    assert retrieves("thanks", ASKED, called, result)
    assert not retrieves("thanks", ASKED, called, result, ANSWERED)
    assert not retrieves("thanks", {"role": "system", "content": "Shall I?"})


def test_with_something_attached_it_retrieves():
    assert retrieves("thanks", attachments=("image/png",))


def test_phrases_of_your_own_count_as_courtesies():
    grueezi = RetrievalGate(also=["Grüezi mitenand"])
    turn = ConversationQuery(Query("Grüezi mitenand!"), (ASKED, OFFERED))
    assert not grueezi.retrieves(turn)
    assert gate.retrieves(turn)
    assert hash(grueezi) == hash(RetrievalGate(also=("Grüezi mitenand",)))


@pytest.mark.parametrize("also", ["thanks", ["  "], ["42"]])
def test_phrases_without_letters_are_refused(also):
    with pytest.raises(InvalidSetting):
        RetrievalGate(also=also)


@given(st.text(max_size=30))
def test_a_digit_a_question_mark_or_an_identifier_always_retrieves(text):
    if Query(f"x{text}").text and re.search(r"\d|[?_/\\@#=<>{}()$%&]", text):
        assert retrieves(f"thanks {text}")


@given(st.lists(st.sampled_from(["thanks", "what", "price", "hello", "ok", "der", "warum"])))
def test_it_lets_go_only_what_its_list_holds(words):
    text = " ".join(words) or "ok"
    known = {"thanks", "hello", "ok"}
    assert retrieves(text) == (len(words) > 6 or not known.issuperset(text.split()))


async def test_a_gated_turn_goes_out_unchanged():
    asked = []
    preparer = Preparer(asked.append, gate=RetrievalGate())
    messages = [ASKED, ANSWERED, {"role": "user", "content": "Thank you!"}]
    prepared = await preparer.prepare(model="m", messages=messages)
    assert prepared.retrieval.skipped == "gate"
    assert prepared.request == {"model": "m", "messages": messages}
    assert asked == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "file", "file": {"file_id": "f1"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ],
)
async def test_a_turn_with_an_image_or_a_file_is_never_gated(part):
    asked = []

    async def retrieve(query):
        asked.append(query.text)
        return []

    preparer = Preparer(retrieve, gate=RetrievalGate(), augmenter=IdentityAugmenter())
    content = [{"type": "text", "text": "hello"}, part]
    await preparer.prepare(messages=[{"role": "user", "content": content}])
    assert asked == ["hello"]
