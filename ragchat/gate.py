"""`RetrievalGate`: which turns need no retrieval, told by rule. Pure; it asks nobody.

A turn is let go only if every word of it belongs to a closed list of greetings, thanks, goodbyes
and acknowledgements in seventeen languages. So a question word, a digit, an identifier, an unknown
word or a sentence always retrieves: a search in vain costs milliseconds, a missed one an answer.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from ragchat_retrieval.errors import InvalidSetting
from ragchat_retrieval.lexical import folded, is_paired

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from ragchat.conversation import ConversationQuery


class Gate(Protocol):
    """Says whether a turn needs retrieval. A bare async or sync function of this shape will do."""

    def __call__(self, conversation: ConversationQuery, /) -> Awaitable[bool] | bool:
        """Returns True to retrieve; False sends the request out unchanged."""
        ...


MOST_WORDS = 6
"""A turn of more words retrieves, whatever they are."""

_MOST_CHARACTERS = 80

_COURTESIES = """
hi | hi there | hi all | hello | hello there | hey | hey there | good morning | good afternoon
good evening | good night | greetings | nice to meet you
thanks | thank you | thanks a lot | thank you so much | thank you very much | thanks so much
many thanks | thanks again | thank you again | much appreciated | thx | ty | cheers
no thanks | no thank you | thanks for your help | thank you for your help | thanks for the help
bye | bye bye | goodbye | good bye | see you | see you later | have a nice day | have a good day
hallo | guten tag | guten morgen | guten abend | gute nacht | moin | servus
danke | danke schön | danke sehr | vielen dank | herzlichen dank | besten dank | nein danke
tschüss | tschüs | auf wiedersehen | bis bald | schönen tag noch
bonjour | bonsoir | salut | merci | merci beaucoup | merci bien | mille mercis | non merci
au revoir | à bientôt | bonne journée | bonne soirée | bonne nuit
hola | buenos días | buenas tardes | buenas noches | gracias | muchas gracias | mil gracias
no gracias | adiós | hasta luego | hasta pronto
ciao | buongiorno | buonasera | buonanotte | grazie | grazie mille | molte grazie | no grazie
arrivederci
olá | bom dia | boa tarde | boa noite | obrigado | obrigada | muito obrigado | muito obrigada
tchau | até logo
goedemorgen | goedemiddag | goedenavond | dank je | dank je wel | dank u | dank u wel | bedankt
tot ziens | doei
cześć | dzień dobry | dobry wieczór | dziękuję | dziękuję bardzo | dzięki | do widzenia
привет | здравствуйте | добрый день | доброе утро | добрый вечер | спасибо | большое спасибо
спасибо большое | благодарю | пока | до свидания
привіт | добрий день | дякую | до побачення
merhaba | selam | günayd\u0131n | iyi günler | iyi akşamlar | teşekkürler | teşekkür ederim
çok teşekkürler | sağ ol | sağolun | hoşça kal | görüşürüz
مرحبا | السلام عليكم | صباح الخير | مساء الخير | شكرا | شكرا جزيلا | شكرًا | مع السلامة
नमस्ते | धन्यवाद | शुक्रिया | अलविदा
你好 | 您好 | 早上好 | 晚上好 | 谢谢 | 谢谢你 | 谢谢您 | 多谢 | 謝謝 | 謝謝你 | 不用了谢谢
再见 | 再見 | 拜拜
こんにちは | こんばんは | おはよう | おはようございます | ありがとう | ありがとうございます
ありがとうございました | どうもありがとう | どうも | さようなら | お疲れ様です
안녕 | 안녕하세요 | 감사합니다 | 고마워 | 고마워요 | 고맙습니다 | 안녕히 계세요
สวัสดี | สวัสดีครับ | สวัสดีค่ะ | ขอบคุณ | ขอบคุณครับ | ขอบคุณค่ะ
"""
"""Greetings, thanks and goodbyes: they ask for nothing, whatever was said before."""

_ACKNOWLEDGEMENTS = """
ok | okay | okey | k | alright | all right | i see | got it | understood | makes sense
good | great | perfect | excellent | awesome | wonderful | nice | cool | super | fantastic
very good | very helpful | sounds good | well done | good job | great job | that helps
that helps a lot | that was helpful | that was very helpful | very nice | good to know | noted
alles klar | verstanden | gut | sehr gut | perfekt | wunderbar | das hilft | ausgezeichnet
d accord | entendu | compris | parfait | très bien | génial | super merci
vale | de acuerdo | entendido | perfecto | muy bien | genial
va bene | capito | perfetto | benissimo
entendi | perfeito | muito bem | ótimo
begrepen | prima dank | perfect dank | duidelijk
rozumiem | świetnie | dobrze
понятно | ясно | хорошо | отлично
зрозуміло | добре | чудово
tamam | anlad\u0131m | harika
حسنا | فهمت | ممتاز
ठीक है | समझ गया | बढ़िया
好的 | 好 | 明白了 | 知道了 | 了解 | 很好 | 太好了
わかりました | 分かりました | 了解です | 了解しました | なるほど
네 알겠습니다 | 알겠습니다 | 알겠어요 | 좋아요
เข้าใจแล้ว | โอเค
"""
"""They ask for nothing, unless they take up an offer."""

_APPROVAL = frozenset("👍👌🙏👏🎉💯❤♥💙💚💛🧡💜🙂😀😃😄😁😊☺😉😍🥰🤗✅✔👋🙌🤝")
_EMOTICON = re.compile(r"(?<!\S)[:;]-?[)DP](?!\S)")
_MARKS = frozenset("?\uff1f\u061f\u037e\u055e\u1367\u2047\u2048\u2049\u203d\u00bf")
_PLAIN = frozenset(
    ".,!:;'\"-\u2013\u2014\u2019\u2018\u201c\u201d\u2026\u00a1~\uff5e\uff01\uff0c\u3002\u3001\uff0e"
)
_JOINED = re.compile(r"\w[.:]\w")
_ASKS = re.compile(rf"[{re.escape(''.join(sorted(_MARKS)))}]|[か吗嗎][。.\uff0e]")


@dataclass(frozen=True, slots=True)
class RetrievalGate:
    """Says which turns need retrieval: all but greetings, thanks, goodbyes and acknowledgements.

    A turn is let go if it consists of such phrases alone, in at most 6 words, with nothing attached
    to it, and

    - nothing was said before it, or the last to speak was the assistant, in words: a user who goes
      on before an answer may be completing a question;
    - it is no mere acknowledgement of something that the assistant asked: "great" after "Shall I
      look up the prices?" is an order.

    Raises:
        InvalidSetting: `also` is a single string, or a phrase has no letters.
    """

    also: tuple[str, ...] = field(default=(), kw_only=True)
    """Further phrases that ask for nothing, whatever was said before."""

    def __post_init__(self) -> None:
        phrases: object = self.also
        if isinstance(phrases, str):
            raise InvalidSetting("also", "must be phrases, not a string")
        object.__setattr__(self, "also", tuple(self.also))
        if not all(map(_words, self.also)):
            raise InvalidSetting("also", "a phrase must have letters")

    async def __call__(self, turn: ConversationQuery) -> bool:
        """Returns what `retrieves` returns."""
        return self.retrieves(turn)

    def retrieves(self, turn: ConversationQuery) -> bool:
        """Says whether to retrieve; when unsure, yes."""
        text = _EMOTICON.sub(" ", turn.query.text)
        if turn.attachments or len(text) > _MOST_CHARACTERS or not _is_plain(text):
            return True
        before = turn.last_turn
        if before is not None and (before.role != "assistant" or not before.text.strip()):
            return True
        words = _words(text)
        if words.count(" ") >= MOST_WORDS:
            return True
        asked = before is not None and _ASKS.search(_last_line(before.text)) is not None
        if not words:
            return asked or _APPROVAL.isdisjoint(text)
        return _phrases(self.also, social=asked).fullmatch(words) is None


def _is_plain(text: str) -> bool:
    """Says whether a text is words, sentence marks and approving emoji alone."""
    if _JOINED.search(text):
        return False
    return all(
        char.isspace()
        or char in _PLAIN
        or char in _APPROVAL
        or unicodedata.category(char)[0] in "LM"
        or unicodedata.category(char) in {"Cf", "Sk"}  # what joins and tints emoji
        for char in text
    )


def _words(text: str) -> str:
    """Returns a text's words without case, marks and diacritics, one space between them."""
    plain = folded(unicodedata.normalize("NFKC", text).casefold())
    return " ".join(
        "".join(
            c if unicodedata.category(c)[0] in "LM" and c != "\ufe0f" else " " for c in plain
        ).split()
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


@lru_cache(maxsize=64)
def _phrases(also: tuple[str, ...], *, social: bool) -> re.Pattern[str]:
    """Returns what matches a text of known phrases alone; `social` leaves acknowledgements out."""
    known = [*_listed(_COURTESIES), *also, *(() if social else _listed(_ACKNOWLEDGEMENTS))]
    phrases = sorted({_words(phrase) for phrase in known}, key=lambda p: (-len(p), p))
    # Scripts without spaces run one phrase into the next.
    one = "|".join(
        re.escape(phrase) + ("" if is_paired(phrase) else r"(?!\S)") for phrase in phrases
    )
    return re.compile(rf"(?:(?:{one})\s*)+")


def _listed(table: str) -> Iterable[str]:
    return (phrase for line in table.strip().splitlines() for phrase in line.split(" | "))
