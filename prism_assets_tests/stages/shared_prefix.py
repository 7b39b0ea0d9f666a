"""Tables that share a prefix: their files, objects for them, and what all of them have read together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from prism_assets.domain.findings import Finding
from prism_assets.stages.findings.groups import GROUPS
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.run import run_until_idle
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.world import World

NOON, LATER = "2026-03-01T12:00", "2026-03-02T03:00"
OTHERWISE = "{by: $.kind, otherwise: true}"


def a_share(name: str, route: str, url: str = "s3://staging/app/", **more: Any) -> str:
    """A table file with a stream at a shared prefix."""
    table = name.split(".")[1]
    text = a_table(name, **more)
    own = f'"s3://staging/{table}/"}}'
    assert own in text
    return text.replace(own, f'"{url}", route: {route}}}' if route else f'"{url}"}}')


def taking(*kinds: str) -> str:
    return f"{{by: $.kind, in: [{', '.join(kinds)}]}}"


ACCOUNTS = a_share("log.accounts", taking("signup", "login"))
WIDER = a_share("log.accounts", taking("signup", "login", "view"))
EVENTS = a_share("log.events", OTHERWISE)
WHEN = "{name: time, source: [time, when],"
"""The column of the time, which then is in another key, too. Replaces its beginning."""


@pytest.fixture
def app(world: World) -> World:
    """Two tables that share a prefix."""
    world.apply(ACCOUNTS, EVENTS)
    return world


def put(world: World, *kinds: Any, extra: Sequence[bytes] = ()) -> dict[str, list[int]]:
    """Puts one object with a line for each kind. Returns the ids of the lines by kind."""
    rows = [{**row, "kind": kind} for row, kind in zip(some_rows(len(kinds), utc(NOON)), kinds, strict=True)]
    body = as_lines(rows) + b"".join(line + b"\n" for line in extra)
    world.drop([], stream="app", body=zipped(body))
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(str(row["kind"]), []).append(row["id"])
    return found


def ledgers(world: World) -> dict[str, tuple[int, ...]]:
    """Lines, rows, quarantined lines and lines elsewhere of all objects, by table."""
    statement = """
        SELECT table_name, sum(lines_in), sum(rows_out), sum(rows_quarantined), sum(rows_elsewhere)
        FROM prism_staging_objects JOIN prism_tables USING (prism_table_id) WHERE state = 'done' GROUP BY 1
    """
    with world.context.database.begin() as connection:
        return {row[0]: tuple(map(int, row[1:])) for row in connection.exec_driver_sql(statement)}


def undivided(world: World) -> list[Finding]:
    return list(read_findings(world.context, None, [GROUPS], now=utc(LATER)))


def finish(world: World, now: str = LATER) -> None:
    run_until_idle(world.context, clock=lambda: utc(now), patience=0)


def stopped(file: str) -> str:
    return file.replace(", route:", ", enabled: false, route:")


def rebuild(world: World, *tables: str) -> None:
    """Rebuilds the day in some tables, and then runs all stages."""
    for table in tables:
        assert run_rebuild(world.context, table, day=utc(NOON).date(), now=utc(LATER)).errors == ()
    finish(world)


def pairs(world: World) -> dict[str, set[str]]:
    """The tables that have an object registered, by its key."""
    statement = "SELECT object_key, table_name FROM prism_staging_objects JOIN prism_tables USING (prism_table_id)"
    found: dict[str, set[str]] = {}
    with world.context.database.begin() as connection:
        for key, table in connection.exec_driver_sql(statement):
            found.setdefault(key, set()).add(table)
    return found
