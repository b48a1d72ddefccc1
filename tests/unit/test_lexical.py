"""What the keyword lane means by a word, and what BM25 is."""

from __future__ import annotations

import copy
import math
import pickle
import threading
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat_retrieval import lexical
from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, MAX_TERM, Analyzer, bm25, folded, idf
from ragchat_retrieval.stopwords import STOP_WORDS

PLAIN = Analyzer(None)


def matches(query: str, text: str, analyzer: Analyzer = DEFAULT_ANALYZER) -> bool:
    """Says whether every term of a query occurs in a text, and there is one."""
    wanted = set(analyzer.terms(query))
    return bool(wanted) and wanted <= set(analyzer.terms(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("re\u0301sume\u0301 format", "r\u00e9sum\u00e9 format"),
        ("\uff21\uff22\uff23", "ABC"),
        ("stra\u00dfe", "STRASSE"),
        ("\u200f\u05e9\u05dc\u05d5\u05dd\u200f", "\u05e9\u05dc\u05d5\u05dd"),
        ("résumé", "resume"),
        ("Ørsted Łódź Ærø", "orsted lodz aero"),
        ("ёлка", "елка"),
        ("Ἀθῆναι", "αθηναι"),
        ("x\u0302 variable", "x variable"),
        ("İstanbul", "istanbul"),
        ("find\u00ading", "finding"),
        ("\u0663\u0664 pages", "34 pages"),
        ("the user\u2019s account", "the user's account"),
        ("non\u2011breaking v1\u20112", "non-breaking v1-2"),
        ("ﬁnding", "finding"),
        ("10 ㎏", "10 kg"),
        ("50 ㎒ ™", "50 MHz TM"),
    ],
)
def test_spellings_of_the_same_word_give_the_same_terms(one: str, other: str) -> None:
    assert DEFAULT_ANALYZER.terms(one) == DEFAULT_ANALYZER.terms(other) != []


@pytest.mark.parametrize(
    ("query", "found", "not_found"),
    [
        ("喝茶", "我喜欢喝茶", ["今天天气很好", "明天会下雨"]),
        ("お茶", "私はお茶が好きです", ["今日は天気がいい"]),
        ("커피", "나는 커피를 좋아해요", ["오늘은 날씨가 좋다"]),
        ("กาแฟ", "ฉันชอบดื่มกาแฟมาก", ["พรุ่งนี้ฝนตก"]),
        ("ກາເຟ", "ຂ້ອຍມັກກາເຟ", ["ມື້ນີ້"]),
        ("កាហ្វេ", "ខ្ញុំចូលចិត្តកាហ្វេ", ["ថ្ងៃនេះ"]),
        ("显存", "GPU显存", ["GPU"]),
        ("gpu", "GPU显存", ["显存"]),
        ("茶", "茶 好", ["喝茶"]),
    ],
)
def test_scripts_without_spaces_are_searched_by_pairs(
    query: str, found: str, not_found: list[str]
) -> None:
    assert matches(query, found)
    for text in not_found:
        assert not set(DEFAULT_ANALYZER.terms(query)) & set(DEFAULT_ANALYZER.terms(text))


def test_pairs_overlap_and_a_single_character_stands_alone() -> None:
    assert DEFAULT_ANALYZER.terms("我喜欢 茶") == ["我喜", "喜欢", "茶"]


@pytest.mark.parametrize(
    ("text", "whole", "parts"),
    [
        ("ERR-4041", "err-4041", ["err", "4041"]),
        ("snake_case", "snake_case", ["snake", "case"]),
        ("v1.2.3", "v1.2.3", ["v1", "2", "3"]),
        ("PRJ-204", "prj-204", ["prj", "204"]),
        ("38.101", "38.101", ["38", "101"]),
        ("C++", "c++", ["c"]),
        ("C#", "c#", ["c"]),
        ("__init__", "__init__", ["init"]),
        ("os.path.join", "os.path.join", ["os", "path", "join"]),
        ("naïve_Größe", "naive_grosse", ["naiv", "gross"]),
    ],
)
def test_identifiers_match_as_written_and_by_part(text: str, whole: str, parts: list[str]) -> None:
    assert DEFAULT_ANALYZER.terms(f"({text}).") == [whole, *parts]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("user's users' ", ["user", "user"]),
        ("we'll don't O'Brien", ["dont", "obrien", "brien"]),
        ("'quoted'", ["quot"]),
        ("state-of-the-art", ["state", "art"]),
        ("end.Next", ["end.next", "end", "next"]),
        ("C++ {x}", ["c++", "c", "x"]),
        ("title:secret", ["titl", "secret"]),
        ("NEAR(x* ^y)", ["near", "x", "y"]),
        ('say "hi', ["sai", "hi"]),
        ("a AND", []),
        ("the of and", []),
        ("( -- ' . _ + # -", []),
        ("", []),
        (" \t\n\x00\ud800", []),
        ("what is the who", []),
    ],
)
def test_words_are_cut_out_of_any_text(text: str, terms: list[str]) -> None:
    assert DEFAULT_ANALYZER.terms(text) == terms


def test_marks_of_other_scripts_stay_in_their_words() -> None:
    assert DEFAULT_ANALYZER.terms("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert not matches("हनद", "हिन्दी")


def test_english_is_stemmed_and_other_languages_are_by_their_own_stemmer() -> None:
    assert matches("connecting", "it connected")
    assert not matches("connecting", "it connected", PLAIN)
    assert matches("Haus", "die Häuser", Analyzer("german"))
    assert matches("великий", "великого", Analyzer("russian"))
    assert Analyzer("german").terms("der und die") == []
    assert PLAIN.terms("the of") == ["the", "of"]


def test_a_lone_character_of_a_question_weighs_a_quarter_and_is_still_a_term() -> None:
    assert DEFAULT_ANALYZER.weights("vitamin D vitamin") == {"vitamin": 2.0, "d": 0.25}
    assert DEFAULT_ANALYZER.weights("茶") == {"茶": 1.0}
    assert DEFAULT_ANALYZER.counts("vitamin D") == {"vitamin": 1, "d": 1}


@pytest.mark.parametrize("language", sorted(STOP_WORDS))
def test_every_stop_list_belongs_to_a_stemmer_and_is_spelled_as_words_are(language: str) -> None:
    analyzer = Analyzer(language)
    assert all(analyzer.terms(word) == [] for word in STOP_WORDS[language])


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="klingon"):
        Analyzer("klingon")


def test_the_name_tells_analyses_apart() -> None:
    assert DEFAULT_ANALYZER.name == "ragchat1:english"
    assert PLAIN.name == "ragchat1:none"
    assert Analyzer() == DEFAULT_ANALYZER != PLAIN
    assert len({Analyzer(), DEFAULT_ANALYZER, PLAIN}) == 2
    assert repr(PLAIN) == "Analyzer(None)"
    assert DEFAULT_ANALYZER != "ragchat1:english"


def test_an_analyzer_can_be_copied_and_sent_to_another_process() -> None:
    for other in (copy.deepcopy(PLAIN), pickle.loads(pickle.dumps(PLAIN))):  # noqa: S301 - our own
        assert other == PLAIN
        assert other.terms("Two words") == ["two", "words"]


def test_long_words_are_cut_to_what_every_store_keeps() -> None:
    assert DEFAULT_ANALYZER.terms("z" * 5000) == ["z" * MAX_TERM]
    assert max(map(len, DEFAULT_ANALYZER.terms("9_" * 5000))) == MAX_TERM


TEXTS = st.text(
    st.one_of(
        st.sampled_from("aZ09 _-.'+#\n’—é\u0301İß喝茶ก"),
        st.characters(),
    ),
    max_size=40,
)


@given(TEXTS)
def test_analysis_is_total_and_its_views_agree(text: str) -> None:
    """No text raises; counts count the terms; no term is blank, long, or has a space in it."""
    for analyzer in (DEFAULT_ANALYZER, PLAIN):
        terms = analyzer.terms(text)
        assert analyzer.counts(text) == Counter(terms)
        assert [*analyzer.counts_many([text, text])] == [Counter(terms)] * 2
        assert all(term and len(term) <= MAX_TERM and not term.split()[1:] for term in terms)


@given(TEXTS)
def test_canonically_equal_texts_have_equal_terms(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    composed = unicodedata.normalize("NFC", clean)
    decomposed = unicodedata.normalize("NFD", clean)
    assert DEFAULT_ANALYZER.terms(composed) == DEFAULT_ANALYZER.terms(decomposed)


@given(TEXTS, TEXTS)
def test_a_space_parts_texts(one: str, other: str) -> None:
    """The terms of two texts side by side are those of each; so nothing reaches across a space."""
    expected = DEFAULT_ANALYZER.terms(one) + DEFAULT_ANALYZER.terms(other)
    assert DEFAULT_ANALYZER.terms(f"{one} {other}") == expected


@given(st.text(st.sampled_from("abC09 _-.'+#\n(:"), max_size=40))
def test_the_fast_path_of_ascii_is_the_general_path(text: str) -> None:
    assert DEFAULT_ANALYZER.terms(text) == DEFAULT_ANALYZER.terms(f"{text} \u3000")
    assert [*DEFAULT_ANALYZER.terms(text), "喝"] == DEFAULT_ANALYZER.terms(f"{text} 喝")


def test_threads_share_an_analyzer() -> None:
    analyzer = Analyzer()
    texts = [f"connecting words number{n} running" for n in range(300)]
    expected = [Analyzer().terms(text) for text in texts]
    results: list[list[list[str]]] = []

    def work() -> None:
        results.append([analyzer.terms(text) for text in texts])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


@given(st.text(max_size=20))
def test_folding_leaves_ascii_alone_and_is_stable(text: str) -> None:
    once = folded(unicodedata.normalize("NFC", text))
    assert folded(once) == once
    assert (
        folded(text.encode("ascii", "ignore").decode()) == text.encode("ascii", "ignore").decode()
    )


def test_bm25_is_as_computed_by_hand() -> None:
    """Two passages of 2 and 4 terms; the mean is 3; 'a' is in both, 'b' in one."""
    passages = [{"a": 1, "b": 1}, {"a": 3, "c": 1}]
    rare, common = math.log(1 + 1.5 / 1.5), math.log(1 + 0.5 / 2.5)
    short, long = 1.2 * (0.25 + 0.75 * 2 / 3), 1.2 * (0.25 + 0.75 * 4 / 3)
    expected = [
        common / (1 + short) + 2 * rare / (1 + short),
        common * 3 / (3 + long),
    ]
    assert bm25({"a": 1, "b": 2, "missing": 9}, passages) == pytest.approx(expected, rel=1e-12)
    assert bm25({"a": 1}, []) == []


@given(st.integers(1, 10**7), st.data())
def test_idf_is_positive_and_falls_as_a_term_becomes_common(live: int, data: st.DataObject) -> None:
    holding = data.draw(st.integers(0, live - 1))
    assert idf(live, holding) > idf(live, holding + 1) > 0


def test_what_is_remembered_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And forgetting changes nothing."""
    monkeypatch.setattr(lexical, "_GENERATION", 8)
    analyzer = Analyzer()
    words = [f"running{n % 30}x connecting{n}" for n in range(200)]
    assert [analyzer.terms(word) for word in words] == [Analyzer().terms(word) for word in words]
    assert len(analyzer._terms) + len(analyzer._terms._old) <= 16
