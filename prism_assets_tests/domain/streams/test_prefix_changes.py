"""Changes of the tables of a prefix that no ledger would show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from prism_assets.domain.streams.groups import Member
from prism_assets.domain.streams.prefix_changes import History, change_problems
from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.stream import DocumentFormat, Stream

BEGUN = {"": History(stream_ids=frozenset({1}), begun_by=frozenset({"log.a"}))}
BY = Route(by="kind", values=("x",))


def a_member(table: str, route: Route | None = None, records: str | None = None) -> Member:
    form = DocumentFormat(records=records) if records else None
    return Member(table, Stream(name="s", bucket="b", key_prefix="p/", route=route, format=form))


def problems(
    before: Sequence[Member],
    after: Sequence[Member],
    past: Mapping[str, History] = BEGUN,
    inherited: Mapping[str, int] | None = None,
) -> list[str]:
    return [problem.table for problem in change_problems(before, after, past, inherited or {})]


A, B = a_member("log.a"), a_member("log.b")


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        ([A], [A], []),
        ([A], [A, B], ["log.b"]),
        ([A], [B], ["log.b"]),
        ([A, B], [A], ["log.b"]),
        ([A, B], [], []),
        ([], [A], []),
        ([], [A, B], ["log.a", "log.b"]),
        ([a_member("log.a", BY), B], [A, B], []),
        ([A, B], [a_member("log.a", Route(key="*.gz")), B], ["log.a"]),
        ([A, B], [A, a_member("log.b", Route(taken_keys=("*.gz",)))], ["log.b"]),
        ([A, B], [A, B, a_member("log.c", records="$.c[*]")], []),
    ],
)
def test_who_joins_leaves_or_reads_other_keys_of_begun_objects_is_named(
    before: list[Member], after: list[Member], wrong: list[str]
) -> None:
    assert problems(before, after) == wrong


def test_nothing_is_refused_before_the_first_object_is_begun() -> None:
    assert problems([A], [A, B], {}) == problems([A], [A, B], {"": History(stream_ids=frozenset({1}))}) == []


def test_a_table_continues_the_stream_that_moves_to_it() -> None:
    assert problems([A], [B], inherited={"log.b": 1}) == []
    past = {"": History(stream_ids=frozenset({1, 2}), begun_by=frozenset({"log.a"}))}
    assert problems([A], [B], past, {"log.b": 1}) == ["log.b"]


def test_the_past_of_other_records_of_the_prefix_does_not_matter() -> None:
    past = {"$.c[*]": History(stream_ids=frozenset({1}), begun_by=frozenset({"log.c"}))}
    assert problems([A], [A, B], past) == []
    parts = [a_member("log.c", records="$.c[*]"), a_member("log.d", records="$.c[*]")]
    assert problems([A, parts[0]], [A, *parts], past) == ["log.d"]
