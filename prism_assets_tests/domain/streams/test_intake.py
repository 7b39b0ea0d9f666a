"""The objects of a stream to read: patterns, names of temporary files, and folder markers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.streams.intake import LeftOut, describe_left_out, reason_left_out
from prism_assets.domain.streams.key_patterns import matches, pattern_problem
from prism_assets.domain.streams.stream import Stream


def a_stream(include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> Stream:
    return Stream(name="events", bucket="staging", key_prefix="_raw/", include=include, exclude=exclude)


def fate(key: str, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), length: int = 1) -> LeftOut | None:
    return reason_left_out(a_stream(include, exclude), f"_raw/{key}", length)


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("*.gz", "a.gz", True),
        ("*.gz", "a/b.gz", False),
        ("**/*.gz", "b.gz", True),
        ("**/*.gz", "a/b/c.gz", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", True),
        ("a/**", "ab/c", False),
        ("**", "a/b", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "a/b/c/zz", False),
        ("dt=*/part-?.gz", "dt=2026-01-01/part-1.gz", True),
        ("dt=*/part-?.gz", "dt=2026-01-01/part-12.gz", False),
        ("part-[0-9].gz", "part-7.gz", True),
        ("part-[!0-9].gz", "part-7.gz", False),
        ("[*].gz", "*.gz", True),
        ("[*].gz", "a.gz", False),
        ("[[]a]", "[a]", True),
        ("A.gz", "a.gz", False),
        ("*", "a\nb", True),
        ("**/", "a/", True),
        ("dir/**", "dir/", True),
    ],
)
def test_a_pattern_matches_whole_keys_folder_by_folder(pattern: str, key: str, expected: bool) -> None:
    assert matches(pattern, key) is expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "is empty"),
        ("/a", "without a slash"),
        ("s3://staging/a", "begin below the prefix"),
        ("tmp/", "write tmp/**"),
        ("*.{gz,json}", "write two patterns"),
        ("a\\*", "write two patterns"),
        ("a**", "alone between slashes"),
        ("[a/b]", "must end with ]"),
        ("[", "must end with ]"),
        ("x" * 257, "longer than 256"),
    ],
)
def test_a_pattern_that_would_surprise_is_refused_with_what_to_write(pattern: str, words: str) -> None:
    assert words in (pattern_problem(pattern) or "")


def test_sound_patterns_have_no_problem() -> None:
    assert [pattern_problem(item) for item in ("**", "*.gz", "a/**/b", "[]]", "[!]a]x", "dt=*/**")] == [None] * 6


def test_a_pattern_with_many_stars_is_matched_without_trying_all_ways_to_divide_a_key() -> None:
    """With all ways tried, this one would not end in this century."""
    assert not matches("/".join(["**", "*a*a*a*a*a*b"] * 8), "/".join(["a" * 60] * 16))


@given(st.lists(st.text(st.sampled_from("ab_.-="), min_size=1, max_size=5), min_size=1, max_size=5))
def test_a_key_written_out_matches_itself_and_no_longer_one(names: list[str]) -> None:
    key = "/".join(names)
    assert matches(key, key, names_hidden=True)
    assert not matches(key, f"{key}/x")
    assert matches("**", key)


@pytest.mark.parametrize("key", ["_temporary/0/part.gz", ".part.gz", "a/_SUCCESS", "a/.hive-staging/x.gz"])
def test_temporary_names_of_writers_are_left_out_by_default(key: str) -> None:
    assert fate(key) is LeftOut.HIDDEN_NAME


def test_names_of_the_prefix_itself_do_not_count_as_temporary() -> None:
    assert fate("a.gz") is None


def test_an_include_takes_hidden_names_only_where_it_writes_their_first_character() -> None:
    """`**/*.gz` means all objects in gzip, but nobody wants those of an unfinished job."""
    assert fate("_temporary/0/part.gz", include=("**/*.gz",)) is LeftOut.HIDDEN_NAME
    assert fate("_archive/part.gz", include=("**", "_archive/*")) is None
    assert fate("part.gz", include=("**", "_archive/*")) is None
    assert fate("_archive/.tmp", include=("_archive/*",)) is LeftOut.HIDDEN_NAME


def test_where_a_stream_has_an_include_other_objects_are_left_out() -> None:
    assert fate("a.csv", include=("**/*.json",)) is LeftOut.NOT_INCLUDED
    assert fate("a/b.json", include=("**/*.json",)) is None


def test_an_exclude_leaves_out_whatever_else_is_said() -> None:
    assert fate("processing-failed/1.gz", exclude=("processing-failed/**",)) is LeftOut.EXCLUDED
    assert fate("_a/1.gz", include=("_a/**",), exclude=("**/1.gz",)) is LeftOut.EXCLUDED


@pytest.mark.parametrize("include", [(), ("**",)])
def test_an_empty_object_whose_key_ends_with_a_slash_is_a_marker_and_one_with_content_is_read(
    include: tuple[str, ...],
) -> None:
    assert fate("2026/", include, length=0) is LeftOut.FOLDER_MARKER
    assert fate("2026/", include, length=5) is None
    assert fate("empty.gz", include, length=0) is None


def test_what_was_left_out_is_told_by_reason() -> None:
    counts = {LeftOut.HIDDEN_NAME: 2, LeftOut.EXCLUDED: 1_000}
    assert describe_left_out(counts) == (
        "1,002 objects left out (2 with a name that begins with _ or ., 1,000 that `exclude` names)"
    )
    assert describe_left_out({}) == describe_left_out({LeftOut.FOLDER_MARKER: 9}) == ""
