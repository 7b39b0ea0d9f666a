"""All subjects, in the order of the screens. Status, doctor, commands, checks and sensors render this list."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime

from prism_assets.domain.days.lifecycle import Publish
from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.tables.assets import Asset
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.columns import COLUMNS, REWRITES
from prism_assets.stages.findings.contents import CONTENTS
from prism_assets.stages.findings.days import DAYS
from prism_assets.stages.findings.drops import DROPS
from prism_assets.stages.findings.erasures import CLOSED_DAYS, ERASURES
from prism_assets.stages.findings.folds import FOLDS
from prism_assets.stages.findings.garbage import GARBAGE, UPLOADS
from prism_assets.stages.findings.groups import GROUPS
from prism_assets.stages.findings.history import HISTORY
from prism_assets.stages.findings.iceberg import BEHIND, FOREIGN, LEFT_OUT
from prism_assets.stages.findings.merges import MERGES, RECORD_MERGES
from prism_assets.stages.findings.objects import UNREAD, WAITING
from prism_assets.stages.findings.publications import COMPARISONS, DEFINITIONS
from prism_assets.stages.findings.records import RECORDS
from prism_assets.stages.findings.set_aside import SET_ASIDE
from prism_assets.stages.findings.streams import STREAMS
from prism_assets.stages.findings.subject import Look, Subject
from prism_assets.stages.findings.topics import SKIPPED, TOPICS

SUBJECTS: Sequence[Subject] = (
    STREAMS,
    TOPICS,
    SKIPPED,
    GROUPS,
    UNREAD,
    WAITING,
    HISTORY,
    UPLOADS,
    DAYS,
    MERGES,
    RECORD_MERGES,
    FOLDS,
    COMPARISONS,
    DEFINITIONS,
    FOREIGN,
    BEHIND,
    LEFT_OUT,
    RECORDS,
    COLUMNS,
    REWRITES,
    CONTENTS,
    SET_ASIDE,
    ERASURES,
    CLOSED_DAYS,
    GARBAGE,
    DROPS,
)


def find_all(look: Look, subjects: Sequence[Subject] = SUBJECTS) -> Iterator[Finding]:
    """The findings of some subjects. A table without one of its erasures has the finding of the erasure alone."""
    sound = look
    if look.held:
        sound = replace(look, tables=[table for table in look.tables if table.table_id not in look.held])
    for subject in subjects:
        yield from subject.find(look if subject.also_held else sound)


def find_work(
    context: StageContext, asset: Asset, *, now: datetime, tables: Sequence[TableDefinition] | None = None
) -> list[Finding]:
    """The findings of `Acts.RUN` of an asset, for the sensor. One for each day, a publication before other steps.

    `tables` are all tables, where the caller has loaded them.
    """
    tables = context.choose_tables(None) if tables is None else tables
    with context.database.begin() as connection:
        return work_of(Look(context=context, connection=connection, tables=tables, now=now, for_people=False), asset)


def work_of(look: Look, asset: Asset) -> list[Finding]:
    """Returns the findings of `find_work`, in the transaction of the caller."""
    subjects = [subject for subject in SUBJECTS if subject.runs == asset]
    chosen: dict[tuple[str | None, date | str], Finding] = {}
    for item in find_all(look, subjects):
        if item.acts is not Acts.RUN:
            continue
        place = item.table, item.date or item.kind
        if place not in chosen or item.kind == Publish.action:
            chosen[place] = item
    return list(chosen.values())


def read_findings(
    context: StageContext, names: Collection[str] | None, subjects: Sequence[Subject] = SUBJECTS, *, now: datetime
) -> tuple[Finding, ...]:
    """The findings of some subjects in the tables named, or in all."""
    tables = context.choose_tables(names)
    with context.database.begin() as connection:
        return tuple(find_all(Look(context=context, connection=connection, tables=tables, now=now), subjects))
