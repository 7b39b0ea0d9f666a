"""The list of findings: its members, and its cost in an idle lake."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from prism_assets.domain.findings import Acts, Finding
from prism_assets.stages import findings
from prism_assets.stages.checks.run import CHECKS
from prism_assets.stages.findings.registry import SUBJECTS, read_findings
from prism_assets.stages.findings.subject import Subject
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.world import World

NOON, AFTER, LATER = "2026-03-01T12:00", "2026-03-02T00:10", "2026-03-02T12:00"


def test_every_subject_of_the_folder_is_in_the_registry() -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(findings.__path__, f"{findings.__name__}.")]
    known = [
        value for name in names for value in vars(importlib.import_module(name)).values() if isinstance(value, Subject)
    ]
    assert {id(subject) for subject in known} == {id(subject) for subject in SUBJECTS}
    assert len(SUBJECTS) == len({id(subject) for subject in SUBJECTS})


def test_every_subject_with_a_check_has_it_in_dagster() -> None:
    named = {subject.check.name: subject.check.asset for subject in SUBJECTS if subject.check}
    assert {name: CHECKS[name].asset for name in named} == named


def test_a_finding_is_told_with_its_table_its_day_and_what_to_do() -> None:
    finding = Finding(kind="x", table="log.events", date=utc(NOON).date(), says="it stands", remedy="Push it")
    assert str(finding) == "log.events 2026-03-01: it stands. Push it"
    assert str(Finding(kind="x", table=None, says="it stands", acts=Acts.TIME)) == "all tables: it stands"


def idle_lake(world: World, iceberg: str) -> None:
    """Makes two tables, each with a switched day without open work."""
    world.apply(*(a_table(name, iceberg=iceberg, merge="{interval: 0}") for name in ("log.events", "log.more")))
    for stream in ("events", "more"):
        world.drop(some_rows(3, utc(NOON)), stream=stream)
    world.stream(NOON)
    for _ in range(2):
        world.catalog(AFTER)
        world.merge(AFTER)
    world.catalog(AFTER)
    if iceberg:
        world.iceberg(AFTER)
    assert read_findings(world.context, None, now=utc(AFTER)) == ()


@pytest.mark.parametrize(("iceberg", "names", "most"), [("", None, 25), ("", ["log.events"], 23), ("true", None, 25)])
def test_status_of_an_idle_lake_asks_no_more_statements_than_it_did(
    world: World, iceberg: str, names: list[str] | None, most: int
) -> None:
    idle_lake(world, iceberg)
    with counted_statements() as asked:
        read_status(world.context, now=utc(AFTER), names=names)
    assert len(asked) <= most, "\n".join(asked)


def statements_of_status(world: World, count: int) -> list[str]:
    """The statements of the status of tables with an open day each."""
    names = [f"log.t{number}" for number in range(count)]
    world.apply(*(a_table(name) + "symlink: true\n" for name in names))
    for name in names:
        world.drop(some_rows(2, utc(NOON)), stream=name.removeprefix("log."))
    world.stream(NOON)
    world.catalog(NOON)
    with counted_statements() as asked:
        tables = read_status(world.context, now=utc(NOON))
    assert [[day.rows > 0 for day in table.partitions] for table in tables] == [[True]] * count
    return asked


def test_the_status_of_six_tables_asks_the_statements_of_the_status_of_two(world: World) -> None:
    assert statements_of_status(world, 2) == statements_of_status(world, 6)
