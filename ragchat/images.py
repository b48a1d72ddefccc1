"""What an image costs in tokens, as far as it can be told without fetching or decoding it.

The rules are those of OpenAI's guide "Images and vision", section "Calculating costs"
(https://platform.openai.com/docs/guides/images-vision). Which model follows which, and with what
numbers, changes with every model, so it is for the caller to say.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

_DATA_URI = re.compile(r"data:image/[\w.+-]+(?:;[\w=.+-]+)*;base64,", re.IGNORECASE)
_HEAD = 1 << 20
"""Characters of base64 that are read at most: in a JPEG the size stands behind the metadata."""

_HEADER = 30
"""Bytes in which every format but JPEG tells its size; no image file is shorter."""

_MARKER = 0xFF
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Kinds of JPEG segments: SOF0 to SOF15, but for DHT, JPG and DAC."""

_SQUARE, _SHORT, _TILE = 2048, 768, 512
_PATCH, _MOST_PATCHES = 32, 1536


class ImageSize(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


ImageTokens: TypeAlias = Callable[[ImageSize | None, str], int]
"""Tokens of an image of a size (None: unknown) at a detail: ``low``, ``high``, ``auto``, …"""


def tile_tokens(base: int = 85, tile: int = 170) -> ImageTokens:
    """Returns the rule by tiles of 512 pixels; the default numbers are those of gpt-4o and gpt-4.1.

    At low detail an image costs `base`. Otherwise it is shrunk into a square of 2,048 pixels, then
    until its shorter side has 768, and costs `base` and `tile` for each tile. One of unknown size
    costs the most that the rule can give: eight tiles.
    """

    def tokens(size: ImageSize | None, detail: str) -> int:
        if detail == "low":
            return base
        if size is None:
            return base + tile * math.ceil(_SQUARE / _TILE) * math.ceil(_SHORT / _TILE)
        scale = min(1.0, _SQUARE / max(size))
        scale = min(scale, _SHORT / min(size))
        across, down = (math.ceil(side * scale / _TILE) for side in size)
        return base + tile * across * down

    return tokens


def patch_tokens(multiplier: float = 1.62) -> ImageTokens:
    """Returns the rule by patches of 32 pixels; 1.62 is the multiplier of gpt-5-mini.

    An image costs a patch for each 32 by 32 pixels begun, times the multiplier, whatever the
    detail. One of more than 1,536 patches is shrunk until it has no more, and counts as 1,536, as
    does one of unknown size.
    """

    def tokens(size: ImageSize | None, detail: str) -> int:
        del detail
        patches = _MOST_PATCHES
        if size is not None:
            patches = min(patches, math.prod(math.ceil(side / _PATCH) for side in size))
        return math.ceil(patches * multiplier)

    return tokens


def image_size(url: str) -> ImageSize | None:
    """Returns the size of an image in a data URI: a PNG, GIF, WebP or JPEG; None of any other."""
    match = _DATA_URI.match(url)
    if match is None:
        return None
    encoded = url[match.end() : match.end() + _HEAD]
    try:
        data = base64.b64decode(encoded[: len(encoded) // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    for reader in (_png, _gif, _webp, _jpeg):
        if (size := reader(data)) is not None:
            return size if min(size) > 0 else None
    return None


def _png(data: bytes) -> ImageSize | None:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR" or len(data) < _HEADER:
        return None
    return ImageSize(_big(data[16:20]), _big(data[20:24]))


def _gif(data: bytes) -> ImageSize | None:
    if data[:6] not in (b"GIF87a", b"GIF89a") or len(data) < _HEADER:
        return None
    return ImageSize(_little(data[6:8]), _little(data[8:10]))


def _webp(data: bytes) -> ImageSize | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < _HEADER:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return ImageSize(_little(data[24:27]) + 1, _little(data[27:30]) + 1)
    if kind == b"VP8L":
        bits = _little(data[21:25])
        return ImageSize((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        return ImageSize(_little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF)
    return None


def _jpeg(data: bytes) -> ImageSize | None:
    """Walks the segments to the frame header."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == _MARKER:
        kind = data[at + 1]
        if kind == _MARKER:  # a fill byte
            at += 1
        elif kind in _FRAMES:
            return ImageSize(_big(data[at + 7 : at + 9]), _big(data[at + 5 : at + 7]))
        else:
            at += 2 + _big(data[at + 2 : at + 4])
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
