"""Abbreviations that end in a full stop: casefolded, without their last stop.

Common ones of English, German, French, Spanish and Russian. A word that is also an ordinary word
(``art``, ``no``) is not in `ALWAYS`.
"""
# ruff: noqa: RUF001 - Cyrillic letters are meant

from __future__ import annotations

_ALWAYS = """
approx assoc aufl bd bzgl bzw c.-à-d ca capt cf cie d.h dept dr e.g eds eqs exec figs fr geb gov hon
hr hrsg i.e insb lt mlle mme mr mrs ms mt n.b nos núm p.ej pág pp prof refs resp rev secs sen sgt
sog sra srta st str tel u.a univ vgl viz vols vs z.b zzgl
г гл др им рис см стр т.е ул
"""
_BEFORE_NUMBERS = """
abb abs art cap ch col ed eq fig kap lib n no nr op p par pt ref s sec tab v vol кн п
"""
_MAY_CLOSE = """
a.m bros corp esq etc inc jr ltd m.a p.m ph.d sr usw и.т.д т.д т.п
"""

ALWAYS = frozenset(_ALWAYS.split())
"""Written before something: the sentence goes on."""

BEFORE_NUMBERS = frozenset(_BEFORE_NUMBERS.split())
"""Abbreviations before a number only."""

MAY_CLOSE = frozenset(_MAY_CLOSE.split())
"""May also close a sentence: a following small letter says that it goes on."""
