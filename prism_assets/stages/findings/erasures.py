"""Erasures without proof, closed days that they waited for, and erasures missing in PostgreSQL after a restore."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.erasures.records import HeldErasure
from prism_assets.domain.erasures.rules import TRIED_AGAIN_AFTER
from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.erasures.erasures import load_closed_days
from prism_assets.stages.erase.report import ErasureStatus, statuses_of
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject

ERASURES_PROVED = "erasures_proved"


def find_unproved(look: Look) -> Iterator[Finding]:
    """Tags and branches of others, and unreadable objects, may keep an erasure for ever."""
    for table_id, held in look.held.items():
        if table_id in look.names:
            yield from (held_erasure(look.names[table_id], item) for item in held)
    for erasure in statuses_of(look.context, look.connection, look.tables, look.erasures):
        yield _unproved(erasure)


def find_closed_days(look: Look) -> Iterator[Finding]:
    """Closed days with rows still to be erased. Asks no statement of its own if no erasure waits for a day."""
    waiting = [item.erasure_id for item in look.erasures if item.open_partitions]
    if not waiting:
        return
    lease = look.context.settings.lease_seconds
    for day in load_closed_days(look.connection, waiting, TRIED_AGAIN_AFTER, lease):
        table = look.names[day.table_id]
        yield Finding(
            kind="erase_closed_day",
            table=table,
            date=day.date,
            says=f"erasure {day.erasure_id} waited for the close of this day, and the day is closed",
            remedy=f"The next run of `merged`, `prism run` or `prism erase {table} --continue` erases its rows",
            acts=Acts.RUN,
            ends_runs=False,
        )


def held_erasure(table: str, item: HeldErasure) -> Finding:
    """Returns the finding of an erasure that keeps a table from work."""
    return Finding(
        kind="missing_erasure",
        table=table,
        says=item.says,
        remedy=item.remedy,
        since=item.record.create_time,
        invariant="I1",
    )


def _unproved(erasure: ErasureStatus) -> Finding:
    return Finding(
        kind="unproved_erasure",
        table=erasure.table,
        says=erasure.wait,
        remedy="What holds it may stay for ever: see to it, then run `prism erase --continue`"
        if erasure.for_a_person
        else "It goes on by itself; `prism erase --continue` does at once what can be done",
        acts=Acts.PERSON if erasure.for_a_person else Acts.TIME,
        since=erasure.create_time,
        invariant="I10",
    )


ERASURES = Subject(
    find=find_unproved,
    check=FindingCheck(
        name=ERASURES_PROVED,
        asset="catalog",
        about="Every object was read after each erasure, and none holds a row of it.",
        passes="all erasures are proved",
    ),
    also_held=True,
)
CLOSED_DAYS = Subject(find=find_closed_days, runs="merged")
