"""Names, and the key grammar of the original staging layout."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.names import TableName, is_name, original_date, original_stream_name


@pytest.mark.parametrize("name", ["a", "log", "pv_log", "a1_", "a" * 64])
def test_names_within_the_grammar_are_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "1a", "_a", "A", "a-b", "a.b", "a/b", "a b", "a" * 65, "ä", "log\n", "..", "a\x00", "лог", "a%2e"]
)
def test_anything_else_is_none(name: str) -> None:
    assert not is_name(name)


@given(st.text())
def test_a_name_can_do_no_harm_in_a_key(text: str) -> None:
    if is_name(text):
        assert text.isascii()
        assert text == text.lower()
        assert not set(text) & set("/.%\\ \n\x00'\"")


def test_each_physical_name_falls_back_by_itself() -> None:
    assert TableName("log", "events").physical == "log.events"
    assert TableName("log", "events", physical_schema="old").physical == "old.events"
    assert TableName("log", "events", physical_table="old").physical == "log.old"
    assert TableName("log", "events", "a", "b").physical == "a.b"


def test_the_logical_name_is_what_people_read() -> None:
    assert str(TableName("log", "events", "a", "b")) == "log.events"


def test_the_original_key_names_its_stream() -> None:
    key = "2528.dwh.streaming_load.example.dummy/2018/08/23/20180823_0315_0c58.gz"
    assert original_stream_name(key) == "example.dummy"


@pytest.mark.parametrize(
    ("key", "stream"),
    [
        ("2528.example.dummy/2018/08/23/x.gz", "example.dummy"),
        ("2528.dummy/2018/08/23/x.gz", None),
        ("xyz!.example.dummy/2018/08/23/x.gz", None),
        ("2528.example.dummy/2018/08/x.gz", None),
        ("2528.example.dummy/2018/08/23/", None),
        ("2528.example.dummy/2018/08/23/more/x.gz", None),
        ("", None),
    ],
)
def test_keys_of_another_shape_name_no_stream(key: str, stream: str | None) -> None:
    assert original_stream_name(key) == stream


@pytest.mark.parametrize(
    ("key", "day"),
    [
        ("2528.dwh.streaming_load.example.dummy/2018/08/23/20180823_0315_0c58.gz", date(2018, 8, 23)),
        ("2528.example.dummy/0001/01/01/x.gz", date(1, 1, 1)),
        ("2528.example.dummy/2018/02/30/x.gz", None),
        ("2528.example.dummy/0000/00/00/x.gz", None),
        ("2528.example.dummy/２018/08/23/x.gz", None),
        ("events/2018/08/23/x.gz", None),
    ],
)
def test_the_original_key_names_its_date(key: str, day: date | None) -> None:
    assert original_date(key) == day
