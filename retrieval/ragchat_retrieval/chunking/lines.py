"""Line numbers of character offsets."""

from __future__ import annotations

import re
from bisect import bisect_right

from ragchat_retrieval.values import Lines

# Form feeds, U+0085, U+2028 and the like are no line ends, in editors as in Markdown.
_LINE_END = re.compile(r"\r\n?|\n")


class LineIndex:
    """The lines of a text. CRLF, a lone CR and LF each end one line.

    Args:
        text: The whole text.
    """

    __slots__ = ("_length", "_starts")

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def of(self, start: int, end: int) -> Lines:
        """Returns the lines of ``text[start:end]``, 1-based and inclusive.

        A line end belongs to the line that it ends.
        """
        first = bisect_right(self._starts, start)
        return Lines(first, max(first, bisect_right(self._starts, max(start, end - 1))))

    def offset(self, line: int) -> int:
        """Returns where a line starts; lines count from 0 here, as parsers count them.

        A line after the last one starts where the text ends.
        """
        return self._starts[line] if line < len(self._starts) else self._length

    def __len__(self) -> int:
        return len(self._starts)
