"""The asset `iceberg`: commits new objects to Iceberg tables. One commit covers all days of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timezone

from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.iceberg_snippets import snippets
from prism_assets.defs.assets.outcome import Facts, Outcome, RunOrder
from prism_assets.defs.assets.reported_positions import read_positions
from prism_assets.defs.assets.sample import read_sample_rows
from prism_assets.defs.keys import Stage
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import listed
from prism_assets.metadata.iceberg.iceberg_tables import PUBLISHER
from prism_assets.stages.context import StageContext
from prism_assets.stages.iceberg.report import IcebergReport, IcebergTableReport, problem_lines
from prism_assets.stages.leases import takeover_seconds

_DAYS_SHOWN = 5
_NOT_IN_FORCE = "its file names Iceberg, and the definition in force does not: the log of this run says why"


def make_iceberg(context: StageContext, order: RunOrder) -> Outcome:
    """In a manual run, commits at once. For a sensor, keeps the pace of each table."""
    # PyIceberg takes as long to import as everything else, and loading definitions does not need it.
    from prism_assets.stages.iceberg.run import run_iceberg

    ids = table_ids(context, order.tables)
    wait_seconds = 0.0 if order.by_sensor else takeover_seconds(context)
    now = datetime.now(timezone.utc)
    done = run_iceberg(context, now=now, names=order.tables, ignore_pace=not order.by_sensor, wait_seconds=wait_seconds)
    reports = {table.table_id: table for table in done.tables}
    changed = {(table.table_id, day): facts for table in done.tables for day, facts in _days(table).items()}
    days = with_own_day(ids, order.day, changed)
    positions = read_positions(context, Stage.ICEBERG, ids, days)
    figures = read_figures(context, ids, days)
    shown = _places_of_snippets(ids, order, changed)
    examples = {(table_id, day): found for table_id, day, found in _examples(done)}
    samples = read_sample_rows(context, PUBLISHER, order.tables, now, examples)
    lines = {table_id: _snippets(context, reports.get(table_id)) for table_id, _ in shown}

    def facts(table_id: int, day: date) -> Facts:
        table_facts = _facts_of_table(reports[table_id]) if table_id in reports else {}
        more = lines[table_id] if (table_id, day) in shown else {}
        of_day = {**changed.get((table_id, day), {}), **samples.get((table_id, day), {})}
        return {**figures[ids[table_id], day], **table_facts, **of_day, **more}

    return Outcome(
        touched={(ids[table_id], day): facts(table_id, day) for table_id, day in changed},
        own_day={name: facts(table_id, order.day) for table_id, name in ids.items()},
        problems=tuple(_problems(done, order, ids)),
        positions=positions,
        warnings=tuple(_skipped_days(done, order)),
    )


def _days(table: IcebergTableReport) -> dict[date, Facts]:
    """Returns the facts of each day changed by a table's commit."""
    commit = table.commit
    if commit is None:
        return {}
    behind = {} if commit.seconds_behind is None else {"seconds behind": round(commit.seconds_behind, 2)}
    days = listed([day.date.isoformat() for day in reversed(commit.by_day)], _DAYS_SHOWN)
    return {
        day.date: {
            "operation": commit.operation,
            "files in": day.files_in,
            "files out": day.files_out,
            "rows in": day.rows_in,
            "rows out": day.rows_out,
            "days of the commit": days,
            "expired snapshots": commit.expired,
            "seconds of the commit": round(commit.seconds, 2),
            **behind,
            **({"restored": True} if table.restored else {}),
        }
        for day in commit.by_day
    }


def _examples(done: IcebergReport) -> Iterator[tuple[int, date, Sequence[str]]]:
    """Yields objects of days with new objects."""
    for table in done.tables:
        for day in table.commit.by_day if table.commit else ():
            if day.examples:
                yield table.table_id, day.date, day.examples


def _facts_of_table(table: IcebergTableReport) -> Facts:
    """Returns facts of the table if the catalog was asked. Snapshot ids are text, because browsers round such long
    numbers.
    """
    if table.metadata_location is None:
        return {}
    facts: dict[str, object] = {
        "iceberg table": table.identifier,
        "metadata location": table.metadata_location,
        "snapshots": table.snapshots,
    }
    return {**facts, **({"snapshot id": str(table.snapshot_id)} if table.snapshot_id is not None else {})}


def _places_of_snippets(
    ids: Mapping[int, str], order: RunOrder, changed: Mapping[tuple[int, date], Facts]
) -> set[tuple[int, date]]:
    """Returns the days to show snippets on: the newest changed day, and in manual runs the requested day.

    Snippets on every day would fill Dagster's database.
    """
    newest: dict[int, date] = {}
    for table_id, day in changed:
        newest[table_id] = max(day, newest.get(table_id, day))
    requested = set() if order.by_sensor else {(table_id, order.day) for table_id in ids}
    return set(newest.items()) | requested


def _snippets(context: StageContext, table: IcebergTableReport | None) -> Facts:
    if table is None or table.metadata_location is None:
        return {}
    return {"how to read it": snippets(context.settings, table.identifier, table.metadata_location)}


def _problems(done: IcebergReport, order: RunOrder, ids: Mapping[int, str]) -> Iterator[Problem]:
    """Yields problems of the requested day in manual runs, and problems of whole tables."""
    for table in done.tables:
        yield from (problem for problem in table.problems if _fails(problem, order))
        if table.skipped and not order.by_sensor:
            yield Problem(table=table.table, reason=table.skip_reason, transient=True)
    for name in set(ids.values()) - {table.table for table in done.tables}:
        yield Problem(table=name, reason=_NOT_IN_FORCE)


def _fails(problem: Problem, order: RunOrder) -> bool:
    """Whether a problem fails the run. A skipped day fails only a manual run for it, because all other days are
    published.
    """
    return problem.date is None or (problem.date == order.day and not order.by_sensor)


def _skipped_days(done: IcebergReport, order: RunOrder) -> Iterator[str]:
    for table in done.tables:
        yield from problem_lines(table.table, [problem for problem in table.problems if not _fails(problem, order)])
