"""Support is agreement in words, phrases and meaning; numbers and denials must agree besides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragchat import Passage
from ragchat.citations.support import BY_MEANING, BY_WORDS, Comparison, Evidence, Rule, leads
from ragchat.citations.wording import Wording, denies, names_in, numbers_in
from ragchat_retrieval.lexical import DEFAULT_ANALYZER, Analyzer

TEXTS = st.lists(
    st.sampled_from(["pump", "valve", "leaks", "gate", "25", "not", "red", ".", "!", "\n"]),
    max_size=12,
).map(" ".join)


def compared(claim, *passages):
    made = [p if isinstance(p, Passage) else Passage(p) for p in passages]
    return Comparison(claim, Evidence(made, DEFAULT_ANALYZER))


def level(claim, *passages):
    return compared(claim, *passages).match(range(len(passages))).level


def test_words_are_the_share_of_the_claims_terms_weighted_by_rarity_in_the_best_two_sentences():
    """Recomputed by hand: 3 sentences, of which 2 hold pump, 1 valve and none gasket."""

    def rarity(holding):
        return math.log(1 + 3 / holding)

    whole = rarity(2) + rarity(1) + rarity(1)
    text = "The pump is red. The pump is old. The valve leaks."
    measured = compared("pump valve gasket", text).measure([0])
    assert measured.words == pytest.approx((rarity(2) + rarity(1)) / whole)
    measured = compared("pump valve gasket", "Valve. Gate. Pump. Pump.").measure([0])
    pump, valve, gasket = (math.log(1 + 4 / holding) for holding in (2, 1, 1))
    assert measured.words == pytest.approx(valve / (pump + valve + gasket))


def test_terms_that_only_title_and_headings_hold_count_for_less():
    passage = Passage("It costs 32 euros.", title="Bikes", headings=("Cargo",))
    measured = compared("cargo bike costs", passage).measure([0])
    assert measured.words == pytest.approx((1 + 2 * 0.7) / 3)


def test_phrases_are_the_share_of_adjacent_words_that_are_adjacent_in_the_passage():
    measured = compared("the red pump leaks", "It is the red pump. Leaks.").measure([0])
    assert measured.phrases == 1.0
    measured = compared("the red pump leaks", "The pump is red. It leaks.").measure([0])
    assert measured.phrases == 0.0
    measured = compared("the red pump leaks", "Is it the red pump?").measure([0])
    assert measured.phrases == pytest.approx(2 / 3)


def test_meaning_is_the_cosine_with_the_best_sentence_or_two_adjacent_ones():
    evidence = Evidence([Passage("One. Two. Three.")], DEFAULT_ANALYZER)
    vectors = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32)
    evidence.add_vectors(vectors)
    claim = np.array([0.6, 0.8, 0.0], dtype=np.float32)
    measured = Comparison("else", evidence, claim).measure([0])
    assert measured.meaning == pytest.approx(1.4 / math.sqrt(2))
    measured = Comparison("else", evidence, -claim).measure([0])
    assert measured.meaning == 0.0


@pytest.mark.parametrize("rule", [BY_WORDS, BY_MEANING])
def test_weights_sum_to_one_and_a_weak_score_is_below_a_strong_one(rule):
    assert rule.words + rule.phrases + rule.meaning == pytest.approx(1)
    assert 0 < rule.weak < rule.strong < 1


def test_passages_together_support_what_neither_does_alone():
    first, second = "Employees get 25 days of paid leave.", "Unused days expire in March."
    claim = "Employees get 25 days of paid leave and unused days expire in March."
    comparison = compared(claim, first, second)
    alone = [comparison.match([row]).score for row in (0, 1)]
    assert comparison.match([0, 1]).score > max(alone)
    measured = comparison.measure([0, 1])
    assert measured.words == 1.0
    assert measured.phrases == pytest.approx(10 / 12)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_scores_lie_between_0_and_1_and_together_never_below_alone(claim, texts):
    comparison = compared(claim, *texts)
    alone = [comparison.match([row]).score for row in range(len(texts))]
    together = comparison.match(range(len(texts))).score
    assert max(alone) <= together <= 1
    assert min(alone) >= 0


@given(st.text(max_size=80), st.text(max_size=200))
def test_no_text_raises(claim, text):
    compared(claim, text).match([0])


@given(TEXTS)
def test_a_sentence_supports_itself_word_for_word(text):
    if Wording.of(text).words >= 2:
        assert level(text, f"Some words before. {text} And after.") == "verbatim"


@pytest.mark.parametrize(
    ("claim", "passage", "expected"),
    [
        ("Employees get 25 days.", "All employees get 25 days a year.", "verbatim"),
        ("EMPLOYEES get **25** days!", "All employees get 25 days a year.", "verbatim"),
        ("喝茶", "我喜欢喝茶。", "strong"),
        ("喜欢喝茶", "我喜欢喝茶。", "verbatim"),
        ("A year has 25 leave days.", "All employees get 25 leave days a year.", "strong"),
        ("A year has 30 leave days.", "All employees get 25 leave days a year.", "weak"),
        ("The small pump weighs 125 kg.", "The small pump weighs 12.5 kg.", "weak"),
        ("The small pump's weight: 12,50 kg.", "The small pump weighs 12.5 kg.", "strong"),
        ("Unused days expire in June.", "Unused days expire in March.", "weak"),
        ("A year has no leave days.", "All employees get 25 leave days a year.", "weak"),
        ("Ein Jahr hat keine Tage Urlaub.", "Ein Jahr hat 25 Tage Urlaub.", "weak"),
        ("Bikes are rented by the hour.", "All employees get 25 days a year.", "none"),
        ("", "All employees get 25 days a year.", "none"),
        ("of the", "of it and the", "none"),
        ("Employees get 25 days.", "", "none"),
    ],
)
def test_the_level_says_how_a_claim_is_supported(claim, passage, expected):
    assert level(claim, passage) == expected


def test_code_and_headings_of_a_passage_support_too():
    assert level("timeout is 30", "```\ntimeout is 30\n```") == "verbatim"
    assert level("paid leave", "# Paid leave\n\nText.") == "verbatim"


def test_the_closest_sentence_is_the_one_that_shares_the_rarest_words():
    text = "The pump is red. The pump valve leaks. The pump is old."
    evidence = Evidence([Passage("Gate."), Passage(text)], DEFAULT_ANALYZER)
    match = Comparison("valve of the pump", evidence).match([0, 1])
    assert evidence.sentences[match.closest].text == "The pump valve leaks."


def test_other_languages_are_compared_by_their_own_analysis():
    german = Analyzer("german")
    evidence = Evidence([Passage("Angestellte haben 25 Urlaubstage.")], german)
    measured = Comparison("Angestellter Urlaubstagen", evidence).measure([0])
    assert measured.words == 1.0


def test_a_lead_is_the_distance_to_the_best_other_score():
    assert leads([0.5, 0.25, 0.125]) == [0.25, -0.25, -0.375]
    assert leads([0.5, 0.5]) == [0, 0]
    assert leads([0.5]) == [0]
    assert leads([]) == []


def test_the_score_of_a_rule_is_the_weighted_mean():
    measured = compared("the red pump leaks", "Is it the red pump?").measure([0])
    rule = Rule(words=0.5, phrases=0.5, meaning=0, strong=1, weak=0)
    assert rule.score(measured) == pytest.approx((measured.words + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,000 or 1.000 or 1 000", {"1000", "1", "000"}),
        ("1,234,567 or 1.234.567 or 1'234'567", {"1234567"}),
        ("1,000.50 or 1.000,5", {"1000.5"}),
        ("3.5 of 12.", {"3.5", "12"}),
        ("12,5 or 12.50", {"12.5"}),
        ("2.0 or 2", {"2"}),
        ("0.125 and 125", {"0125", "125"}),
        ("v1.2.3, ٢٥ and \uff12\uff15", {"1.2.3", "25"}),
        ("12.05.2024", {"12.05.2024"}),
        ("none", set()),
    ],
)
def test_numbers_are_compared_by_value_however_their_digits_are_grouped(text, expected):
    assert numbers_in(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Go tool of ACME, Paris (France) and Anne-Marie's Élan", ["Go", "ACME", "Paris"]),
        ("Alone. The next", []),
        ("он живёт в Москве", ["Москве"]),
        ("我喜欢喝茶", []),
    ],
)
def test_names_are_words_with_a_capital_inside_a_sentence(text, expected):
    assert names_in(text)[: len(expected)] == expected
    assert bool(names_in(text)) == bool(expected)


def test_nouns_with_a_capital_are_no_names_in_german():
    claim, passage = "Ein Jahr bringt Tage Urlaub.", "Ein Jahr bringt Tage frei."
    german = Evidence([Passage(passage)], Analyzer("german"))
    assert Comparison(claim, german).match([0]).level == "strong"
    assert level(claim, passage) == "weak"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It isn’t safe.", True),
        ("No leave.", True),
        ("Es ist nicht sicher.", True),
        ("Ce n'est jamais sûr, ne pas", True),
        ("не безопасно", True),
        ("这不安全", True),
        ("安全ではない", True),
        ("It is noted and known.", False),
        ("安全です", False),
    ],
)
def test_denials_are_told_in_some_languages(text, expected):
    assert denies(text) is expected
