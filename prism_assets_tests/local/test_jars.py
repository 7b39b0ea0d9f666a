"""Jars are accepted only with the expected content."""

from pathlib import Path

import pytest

from prism_assets.domain.errors import TerminalError
from prism_local import jars
from prism_local.layout import Layout


def test_a_jar_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_CACHE", str(tmp_path))
    fetched = tmp_path / "fetched.jar"
    fetched.write_bytes(b"something else")
    with pytest.raises(TerminalError, match="unexpected content"):
        jars._accept(jars.JARS["postgresql"], fetched, tmp_path)
    assert jars.missing(Layout(tmp_path)) == list(jars.JARS)


def test_a_jar_cut_short_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_CACHE", str(tmp_path))
    place = Layout(tmp_path)
    jars.folders(place)[0].mkdir()
    for name, jar in jars.JARS.items():
        with open(jars.path(name, place), "wb") as file:
            file.truncate(jar.size - (name == "s3proxy"))
    assert jars.missing(place) == ["s3proxy"]


def test_the_description_for_ivy_names_the_classifier() -> None:
    text = jars._description(list(jars.JARS.values()))
    assert text.count("<dependency ") == 4
    assert 'm:classifier="jar-with-dependencies"' in text
