"""What images cost, against the examples of OpenAI's guide and files written by Pillow."""

from __future__ import annotations

import base64
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ragchat.images import ImageSize, image_size, patch_tokens, tile_tokens


def data_uri(size: tuple[int, int], kind: str, **options) -> str:
    written = io.BytesIO()
    Image.new("RGB", size, "navy").save(written, kind, **options)
    encoded = base64.b64encode(written.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{encoded}"


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [
        ((1024, 1024), "high", 765),
        ((2048, 4096), "high", 1105),
        ((4096, 8192), "low", 85),
        ((512, 512), "auto", 255),
        (None, "high", 1445),
        (None, "low", 85),
    ],
)
def test_the_rule_by_tiles_gives_what_the_guide_says(size, detail, tokens):
    assert tile_tokens()(size and ImageSize(*size), detail) == tokens


@pytest.mark.parametrize(
    ("size", "tokens"), [((1024, 1024), 1024), ((1800, 2400), 1536), (None, 1536), ((33, 1), 2)]
)
def test_the_rule_by_patches_never_says_less_than_the_guide(size, tokens):
    """The guide's second example is shrunk to 1,452 patches."""
    assert patch_tokens(1.0)(size and ImageSize(*size), "high") == tokens
    assert patch_tokens(1.62)(ImageSize(32, 32), "high") == 2


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_no_image_of_known_size_costs_more_than_one_of_unknown_size(width: int, height: int):
    for rule in (tile_tokens(), patch_tokens()):
        assert 0 < rule(ImageSize(width, height), "high") <= rule(None, "high")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("GIF", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True, "exif": b"Exif\0\0" + b"x" * 9_000}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\0\0x"}),
    ],
)
def test_the_size_of_an_image_in_a_data_uri_is_read_from_its_header(kind, options):
    assert image_size(data_uri((321, 123), kind, **options)) == (321, 123)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "data:image/png;base64,",
        "data:image/png;base64,????",
        "data:image/png;base64,iVBORw0KGgo=",
        "data:image/webp;base64," + base64.b64encode(b"RIFF\0\0\0\0WEBPVP8X").decode(),
        "data:image/jpeg;base64," + base64.b64encode(b"\xff\xd8" + b"\xff\xe0\0\0" * 40).decode(),
        "data:image/bmp;base64,Qk0=",
        data_uri((5, 5), "PNG").replace("image/png", "text/plain"),
    ],
)
def test_the_size_of_anything_else_is_unknown(url):
    assert image_size(url) is None


@given(st.sampled_from([b"", b"\xff\xd8", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8 "]), st.binary())
def test_no_bytes_make_reading_the_size_fail(start: bytes, rest: bytes):
    encoded = base64.b64encode(start + rest).decode()
    size = image_size(f"data:image/png;base64,{encoded}")
    assert size is None or min(size) > 0
