"""The forms of `source`, and how keys that look like one are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.streams.documents import OuterKey, outer_key, record_steps
from prism_assets.domain.streams.sources import (
    Constant,
    Fact,
    Key,
    Outer,
    Path,
    Pattern,
    Rest,
    Source,
    constant,
    parse_source,
    source_of_key,
)

FORMS: dict[str, Source] = {
    "event_time": Key("event_time"),
    "a.b": Key("a.b"),
    "@timestamp": Key("@timestamp"),
    "$": Key("$"),
    "$x": Key("$x"),
    "/": Key("/"),
    "//": Key("//"),
    "$.user": Key("user"),
    "$.user.id": Path("user", ("id",)),
    '$.a[0]["b.c"].d': Path("a", (0, "b.c", "d")),
    '$["\\u00e9 \\" x"]': Key('\u00e9 " x'),
    "$outer": Key("$outer"),
    '$["$outer"].a': Path("$outer", ("a",)),
    "$outer.a[0].b": Outer(("a", 0, "b")),
    '$outer["a b"]': Outer(("a b",)),
    "*": Rest(),
    "/^utm_/": Pattern("^utm_"),
    "@line": Fact("@line"),
    "@object_id": Fact("@object_id"),
    '@="shop"': Constant('"shop"'),
    "@= null": Constant("null"),
}


@pytest.mark.parametrize("text", FORMS)
def test_each_form_is_told_apart(text: str) -> None:
    assert parse_source(text) == FORMS[text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$.", "no path at its character 2"),
        ("$.a..b", "no path at its character 4"),
        ("$.a[x]", "no path at its character 4"),
        ("$[0].a", "must begin with a key"),
        ('$["\\x"]', "is no JSON text"),
        ('$["\\ud800"]', "names half a surrogate pair"),
        ('$outer["\\ud800x"]', "names half a surrogate pair"),
        ("@=shop", 'must have a JSON value after @=, such as @="shop"'),
        ("@=NaN", "must have a JSON value"),
        ("@=", "must have a JSON value"),
    ],
)
def test_what_is_no_path_is_told(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_source(text)


def test_keys_on_the_way_to_records_have_whole_characters_alone() -> None:
    assert record_steps('$["\\ud83d\\ude00"][*]') == ("\U0001f600", None)
    with pytest.raises(ValueError, match="names half a surrogate pair"):
        record_steps('$["\\ud800"][*]')


def test_an_object_lies_around_records_below_an_empty_key() -> None:
    assert outer_key(record_steps('$[""][*]'), ("owner",)) == (OuterKey(0, "owner"), ())
    with pytest.raises(ValueError, match="no object lies around its records"):
        outer_key(record_steps("$[*]"), ("owner",))


@given(
    st.one_of(st.text(), st.sampled_from(["*", "@line", "@=1", "/x/", "$.a", "$[", '$["', "\\", '"']).flatmap(st.just))
)
def test_every_key_can_be_named(key: str) -> None:
    assert parse_source(source_of_key(key)) == Key(key)


@pytest.mark.parametrize("value", ["front", 'a "b" é', True, None])
def test_a_value_that_is_the_same_in_all_lines_can_be_written(value: str | bool | None) -> None:
    source = parse_source(constant(value))
    assert isinstance(source, Constant)
    assert json.loads(source.json) == value
