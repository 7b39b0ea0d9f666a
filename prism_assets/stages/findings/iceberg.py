"""Iceberg tables with missing rows: foreign commits, late commits, days left out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.iceberg.snapshots import ACTIVE, waits_for_a_person
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, listed
from prism_assets.metadata.iceberg import iceberg_figures, iceberg_tables
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject

FOREIGN_COMMITS, DAYS_LEFT_OUT = "foreign_commits", "days_left_out"
_LONG_BEHIND = 1_800
"""Rows wait for a person after this many seconds."""
_SHOWN = 5


def _tables(look: Look) -> dict[int, TableDefinition]:
    return {table.table_id: table for table in look.tables if table.iceberg}


def find_foreign(look: Look) -> Iterator[Finding]:
    """Tables with foreign commits at the last publication."""
    if not (tables := _tables(look)):
        return
    for table_id, known in iceberg_tables.load_known_tables(look.connection, list(tables)).items():
        table = tables[table_id]
        if known.state != ACTIVE:
            is_stopped = table.iceberg is not None and waits_for_a_person(known, table.iceberg.on_foreign)
            yield Finding(
                kind=FOREIGN_COMMITS,
                table=str(table.name),
                says=known.last_error or f"{known.identifier} is {known.state}",
                remedy=f"`prism iceberg status --table {table.name}` says how the table is",
                acts=Acts.PERSON if is_stopped else Acts.TIME,
                since=known.look_time,
                invariant="I10",
            )


def find_behind(look: Look) -> Iterator[Finding]:
    """Tables with rows of half an hour ago. The check `seconds_behind` goes by the pace of each table."""
    if not (tables := _tables(look)):
        return
    for table_id, waiting in iceberg_figures.waiting_rows(look.connection, list(tables)).items():
        if waiting.seconds > _LONG_BEHIND:
            yield Finding(
                kind="seconds_behind",
                table=look.names[table_id],
                says=f"rows of {counted(waiting.days, 'day')} wait to be shown by its Iceberg table, the first for "
                f"{waiting.seconds / 60:.0f} minutes",
                remedy=f"`prism iceberg publish --table {look.names[table_id]}` says why",
                count=waiting.days,
                invariant="I10",
            )


def find_left_out(look: Look) -> Iterator[Finding]:
    """Days with wrong or missing lists, and no commit under way."""
    if not (tables := _tables(look)):
        return
    old: dict[int, list[date]] = {}
    others: dict[int, list[date]] = {}
    for item in iceberg_figures.unlisted_days(look.connection, list(tables)):
        (old if item.old_objects else others).setdefault(item.table_id, []).append(item.date)
    for table_id, days in old.items():
        yield _left_out(
            "days_in_milliseconds",
            look.names[table_id],
            days,
            "timestamps in milliseconds, in which readers of Iceberg find wrong rows",
            f"They are shown when they are merged; `prism iceberg adopt {look.names[table_id]}` rewrites them at once",
        )
    for table_id, days in others.items():
        table = look.names[table_id]
        yield _left_out(
            DAYS_LEFT_OUT,
            table,
            days,
            "merged objects that do not hold the rows of the small ones, or a commit that was not recorded",
            f"`prism iceberg plan --table {table}` says which, `prism doctor --table {table}` what is wrong",
        )


def _left_out(kind: str, table: str, days: list[date], why: str, remedy: str) -> Finding:
    shown = listed([day.isoformat() for day in days], _SHOWN)
    return Finding(
        kind=kind,
        table=table,
        says=f"its Iceberg table does not show {counted(len(days), 'day')} with {why}: {shown}",
        remedy=remedy,
        count=len(days),
        invariant="I10",
    )


FOREIGN = Subject(
    find=find_foreign,
    check=FindingCheck(
        name=FOREIGN_COMMITS,
        asset="iceberg",
        about="No other writer has committed to the table or taken its name.",
        passes="no other writer had committed to it at the last publication",
        is_error=True,
    ),
)
BEHIND = Subject(find=find_behind)
LEFT_OUT = Subject(
    find=find_left_out,
    check=FindingCheck(
        name=DAYS_LEFT_OUT,
        asset="iceberg",
        about="No day is left out because of its objects.",
        passes="no day was left out",
    ),
)
