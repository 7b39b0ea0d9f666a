"""Links of a description, in the copy that becomes part of a wheel."""

from __future__ import annotations

import pytest

from prism_assets_tests.docs.descriptions import base_url, with_absolute_links

URL = "https://github.com/o/r/blob/v1"
RAW = "https://github.com/o/r/raw/v1"


@pytest.mark.parametrize(
    ("written", "absolute", "without_url"),
    [
        ("[a](pages/a.md#b)", f"[a]({URL}/pages/a.md#b)", "a"),
        ("[a](https://a.example)", "[a](https://a.example)", "[a](https://a.example)"),
        ("[a](#below)", "[a](#below)", "[a](#below)"),
        ("[two\nlines](a.md)", f"[two\nlines]({URL}/a.md)", "two\nlines"),
        ("![p](docs/p.png)", f"![p]({RAW}/docs/p.png)", ""),
        ("```\n[a](b)\n```", "```\n[a](b)\n```", "```\n[a](b)\n```"),
        (
            '<picture>\n  <img alt="x" src="docs/p.svg">\n</picture>\n\nnext',
            f'<picture>\n  <img alt="x" src="{RAW}/docs/p.svg">\n</picture>\n\nnext',
            "next",
        ),
    ],
)
def test_relative_links_become_absolute_or_text(written: str, absolute: str, without_url: str) -> None:
    assert with_absolute_links(written, URL) == absolute
    assert with_absolute_links(written, None) == without_url


def test_a_description_in_a_folder_links_from_there() -> None:
    assert with_absolute_links("[a](../pages/a.md)", URL, "prism_local") == f"[a]({URL}/pages/a.md)"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://github.com/o/r.git", "https://github.com/o/r/blob/v0.1.0"),
        ("git@github.com:o/r.git", "https://github.com/o/r/blob/v0.1.0"),
        ("https://code.example/o/r/src/tag/v1/", "https://code.example/o/r/src/tag/v1"),
        ("/srv/git/prism", None),
        ("", None),
    ],
)
def test_the_address_comes_from_a_remote_or_is_given(given: str, url: str | None) -> None:
    assert base_url(given, "0.1.0") == url
