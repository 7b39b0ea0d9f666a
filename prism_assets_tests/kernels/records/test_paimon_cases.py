"""Results of another engine of partial updates for changes of one key, case by case, compared with ours."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.records.joins import Group, JoinOptions, Member
from prism_assets.domain.records.model import Change, RecordModel
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets_tests.kernels.builders import Lake, a_column, a_table
from prism_assets_tests.kernels.records.builders import START_MS, FoldedTable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("paimon_cases.toml").read_text())["case"]
GROUP_OF = {"a": "g1", "b": "g1", "c": "g2", "d": "g2"}
NUMBERS = ("a", "b", "c", "d", "g1", "g2")


def a_case_table(case: dict[str, Any]) -> TableDefinition:
    groups = tuple(
        Group(
            name=name, sequence=(name, case["second"]) if "second" in case else (name,), owner=name == case.get("owner")
        )
        for name in case["groups"]
    )
    members = {**GROUP_OF, **case.get("members", {})}
    merges = case.get("merge", {})
    columns = [name for name in NUMBERS if members.get(name, name) in case["groups"]]
    join = JoinOptions(
        key=("id",),
        groups=groups,
        members=tuple(
            Member(column=name, group=members[name], merge=merges.get(name, "winner"))
            for name in columns
            if name in members
        ),
        window_seconds=None,
        lateness_seconds=0,
        buckets=1,
    )
    numbers = [a_column(name, "bigint", place + 3) for place, name in enumerate(columns)]
    return replace(a_table(a_column("id", "bigint", 2), *numbers), join=join)


def changes_of(case: dict[str, Any]) -> list[Change]:
    return [
        Change(
            group=group,
            identity=(number, 0),
            time=START_MS,
            values={"id": 1, group: None if sequence == "null" else sequence, **values},
            deleted=bool(rest),
        )
        for number, (group, sequence, values, *rest) in enumerate(case["changes"])
    ]


def told(values: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None and name in NUMBERS}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_model_shows(case: dict[str, Any]) -> None:
    table = a_case_table(case)
    assert table.join is not None
    model = RecordModel(table.join, {column.name: column.type for column in table.columns}, "time")
    for changes in (changes_of(case), changes_of(case)[::-1]):
        records = [record for record in model.records_of(changes) if record.is_visible]
        assert [told(dict(record.values)) for record in records] == ([case["ours"]] if "ours" in case else [])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_folds_show(case: dict[str, Any], lake: Lake) -> None:
    """All at once, and one by one with a fold between any two, from both ends."""
    table, changes = a_case_table(case), changes_of(case)
    one_by_one = [[change] for change in changes]
    for number, portions in enumerate(([changes], one_by_one, one_by_one[::-1])):
        folded = FoldedTable(Lake(made(lake.root / str(number))), table)
        for portion in portions:
            folded.put(*portion)
        assert [told(row) for row in folded.stored_seen()] == ([case["ours"]] if "ours" in case else [])


def test_each_difference_has_its_reason() -> None:
    assert [case["name"] for case in CASES if ("theirs" in case) != ("why" in case)] == []
    names = [case["name"] for case in CASES]
    assert [one for one, other in itertools.combinations(names, 2) if one == other] == []


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
