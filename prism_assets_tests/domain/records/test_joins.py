"""What a table file may say of a join, problem by problem."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from prism_assets.domain.columns.type_names import parse_type
from prism_assets.domain.columns.types import ColumnType
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.records.joins import (
    OF_CHANGES,
    Group,
    JoinOptions,
    Member,
    PublishPolicy,
    hidden_column_id,
    join_problems,
)

TYPES: dict[str, ColumnType] = {
    name: parse_type(kind)
    for name, kind in {
        "request_id": "string",
        "time": "timestamp",
        "page": "string",
        "sent_at": "timestamp",
        "tries": "bigint",
        "version": "bigint",
        "price": "double",
        "body": "json",
        "amount": "decimal(30,2)",
    }.items()
}
FRONT = Group(name="front", sequence=("sent_at",))
BACK = Group(name="back", sequence=("version",), owner=True)
MEMBERS = (
    Member(column="page", group="front"),
    Member(column="price", group="front"),
    Member(column="body", group="front"),
    Member(column="tries", group="back", merge="max"),
    Member(column="amount", group="back"),
)


def a_join(**more: Any) -> JoinOptions:
    settings: dict[str, Any] = {
        "key": ("request_id",),
        "groups": (FRONT, BACK),
        "members": MEMBERS,
        "window_seconds": 10_800,
        "lateness_seconds": 3_600,
    }
    return JoinOptions(**{**settings, **more})


def with_member(**said: str) -> JoinOptions:
    """The join, in which one column says something else."""
    member = Member(**said)
    return a_join(members=(*(one for one in MEMBERS if one.column != member.column), member))


class Case(NamedTuple):
    name: str
    join: JoinOptions
    field: tuple[str, ...]
    message: str


CASES = [
    Case("no key", a_join(key=()), ("key",), "must name at least one column"),
    Case("an unknown key", a_join(key=("request",)), ("key",), "request is not among the columns"),
    Case("the day in the key", a_join(key=("request_id", "time")), ("key",), "joins nothing that happens at another"),
    Case("a key of doubles", a_join(key=("request_id", "price")), ("key",), "can be written in several ways"),
    Case("a key twice", a_join(key=("request_id", "request_id")), ("key",), "request_id is given twice"),
    Case("no groups", a_join(groups=()), ("groups",), "must name at least one group"),
    Case(
        "two owners",
        a_join(groups=(replace(FRONT, owner=True), BACK)),
        ("groups", "back", "owner"),
        "front is the owner already",
    ),
    Case(
        "an unknown sequence",
        a_join(groups=(replace(FRONT, sequence=("send_at",)), BACK)),
        ("groups", "front", "sequence"),
        "did you mean sent_at",
    ),
    Case(
        "no sequence",
        a_join(groups=(replace(FRONT, sequence=()), BACK)),
        ("groups", "front", "sequence"),
        "must name at least one column",
    ),
    Case(
        "a sequence twice",
        a_join(groups=(replace(FRONT, sequence=("sent_at", "sent_at")), BACK)),
        ("groups", "front", "sequence"),
        "names a column twice",
    ),
    Case(
        "one sequence of two groups",
        a_join(groups=(FRONT, replace(BACK, sequence=("sent_at",)))),
        ("groups", "back", "sequence"),
        "sent_at is the sequence of front, too",
    ),
    Case(
        "a sequence of JSON",
        a_join(groups=(replace(FRONT, sequence=("body",)), BACK)),
        ("groups", "front", "sequence"),
        "which has no order",
    ),
    Case(
        "the key as sequence",
        a_join(groups=(replace(FRONT, sequence=("request_id",)), BACK)),
        ("groups", "front", "sequence"),
        "the same in all changes",
    ),
    Case(
        "an unknown group",
        with_member(column="page", group="frond"),
        ("columns", "page", "group"),
        "did you mean front",
    ),
    Case("no group", a_join(members=MEMBERS[1:]), ("columns", "page", "group"), "say which of front, back writes page"),
    Case(
        "two groups",
        a_join(members=(*MEMBERS, Member(column="page", group="back"))),
        ("columns", "page", "group"),
        "page is in front already",
    ),
    Case(
        "a group of the key",
        with_member(column="request_id", group="front"),
        ("columns", "request_id", "group"),
        "part of the key",
    ),
    Case("a group of the time", with_member(column="time", group="back"), ("columns", "time", "group"), "first event"),
    Case(
        "a group of what is not stored",
        with_member(column="host", group="back"),
        ("columns", "host", "group"),
        "host is not stored",
    ),
    Case(
        "a sequence in another group",
        with_member(column="sent_at", group="back"),
        ("columns", "sent_at", "group"),
        "sent_at is the sequence of front",
    ),
    Case(
        "an unknown merge",
        with_member(column="page", group="front", merge="last"),
        ("columns", "page", "merge"),
        "must be one of winner, last_non_null",
    ),
    Case(
        "a merge of a sequence",
        with_member(column="version", group="back", merge="max"),
        ("columns", "version", "merge"),
        "of which the winner's value is shown",
    ),
    Case(
        "the least JSON",
        with_member(column="body", group="front", merge="min"),
        ("columns", "body", "merge"),
        "needs values with an order",
    ),
    Case(
        "a sum of doubles",
        with_member(column="price", group="front", merge="sum"),
        ("columns", "price", "merge"),
        "depends on the order",
    ),
    Case(
        "a sum of long decimals",
        with_member(column="amount", group="front", merge="sum"),
        ("columns", "amount", "merge"),
        "at most 28 digits",
    ),
    Case(
        "a sum of texts",
        with_member(column="page", group="front", merge="sum"),
        ("columns", "page", "merge"),
        "needs whole numbers or decimals, not string",
    ),
    Case(
        "a count of texts",
        with_member(column="page", group="front", merge="count"),
        ("columns", "page", "merge"),
        "needs the type bigint",
    ),
    Case("three buckets", a_join(buckets=3), ("buckets",), "a power of two"),
    Case("no buckets", a_join(buckets=0), ("buckets",), "a power of two"),
    Case("no window", a_join(window_seconds=0), ("window",), "or be forever"),
    Case("negative lateness", a_join(lateness_seconds=-1), ("lateness",), "must not be negative"),
    Case("an unknown end", a_join(after="drop"), ("after",), "must be one of settle, delete"),
    Case("deleted behind for ever", a_join(after="delete", window_seconds=None), ("after",), "never settle"),
    Case("all the time", a_join(publish=PublishPolicy(every_seconds=0)), ("publish", "every"), "must be 1s or more"),
    Case("never dirty", a_join(publish=PublishPolicy(dirty=0)), ("publish", "dirty"), "must be above 0"),
    Case(
        "stale at once",
        a_join(publish=PublishPolicy(stale_seconds=60)),
        ("publish", "stale"),
        "must not be shorter than publish.every",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_join_is_refused_for(case: Case) -> None:
    problems = join_problems(case.join, TYPES, "time")
    assert [problem.field for problem in problems if case.message in problem.message] == [case.field]


def test_a_join_without_contradictions_has_no_problems() -> None:
    assert join_problems(a_join(), TYPES, "time") == ()
    assert join_problems(a_join(window_seconds=None), TYPES, "time") == ()
    explicit = with_member(column="version", group="back")
    assert join_problems(explicit, TYPES, "time") == ()


def test_groups_may_all_be_ordered_by_the_time() -> None:
    groups = (replace(FRONT, sequence=("time",)), replace(BACK, sequence=("time", "version")))
    members = (*MEMBERS, Member(column="sent_at", group="front"))
    assert join_problems(a_join(groups=groups, members=members), TYPES, "time") == ()


@pytest.mark.parametrize("merge", ["first", "min", "max", "sum", "count"])
def test_deletes_go_with_no_merge_that_cannot_take_anything_back(merge: str) -> None:
    join = with_member(column="tries", group="back", merge=merge)
    assert join_problems(join, TYPES, "time", deleting=["front"]) == ()
    (problem,) = join_problems(join, TYPES, "time", deleting=["back"])
    assert problem.field == ("columns", "tries", "merge")
    assert f"{merge} cannot take back" in problem.message


@pytest.mark.parametrize("merge", ["winner", "last_non_null"])
def test_deletes_go_with(merge: str) -> None:
    join = with_member(column="tries", group="back", merge=merge)
    assert join_problems(join, TYPES, "time", deleting=["back"]) == ()


def test_a_definition_gives_back_what_it_stored() -> None:
    join = a_join(window_seconds=None, buckets=4, publish=PublishPolicy(dirty=0.2))
    assert JoinOptions.from_document(json.loads(json.dumps(join.to_document())), "log.requests") == join


@pytest.mark.parametrize("part", ["", "groups", "members", "publish"])
def test_a_definition_of_a_later_version_is_refused(part: str) -> None:
    document = json.loads(json.dumps(a_join().to_document()))
    into = document[part] if part else document
    (into[0] if isinstance(into, list) else into)["shape"] = "round"
    with pytest.raises(InvariantBroken, match=r"log\.requests says shape"):
        JoinOptions.from_document(document, "log.requests")


def test_ids_of_hidden_columns_never_change() -> None:
    ids = [1_400_301_522, 1_707_883_585, 1_725_653_640, 1_163_608_593]
    assert [hidden_column_id(name) for name in OF_CHANGES] == ids
