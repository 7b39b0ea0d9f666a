"""Differences between the catalog and the record of publications, for checks and doctor. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.days.partitions import Partition, current_publication
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days import publications
from prism_assets.stages.context import StageContext


@dataclass(frozen=True)
class Difference:
    """A day whose readers are sent elsewhere than recorded."""

    date: date
    recorded: str | None
    """None for an expired day, which the catalog should not have."""
    shown: str | None
    """None if the catalog does not have the day."""


@dataclass(frozen=True)
class Comparison:
    """The number of days recorded as published, and the differing days."""

    published: int
    differences: tuple[Difference, ...]


def compare_catalogs(
    context: StageContext, tables: Sequence[TableDefinition], found: Mapping[int, Sequence[Partition]]
) -> dict[int, Comparison]:
    """Compares partitions, by table id, with every catalog that shows their table."""
    compared = {}
    for table_id, catalogs in context.for_catalogs(tables).items():
        (table,) = (table for table in tables if table.table_id == table_id)
        each = []
        for one in catalogs:
            with context.database.begin() as connection:
                seen = publications.as_shown_by(connection, one.publisher.name, found.get(table_id, ()))
            each.append(compare_locations(one, table, seen))
        compared[table_id] = Comparison(
            published=max(item.published for item in each),
            differences=tuple(difference for item in each for difference in item.differences),
        )
    return compared


def compare_locations(context: StageContext, table: TableDefinition, found: Collection[Partition]) -> Comparison:
    """Compares the locations in the catalog with the recorded ones. Asks the catalog once."""
    recorded: dict[date, str] = {
        item.date: context.publisher.location(table, item.date, publication)
        for item in found
        if (publication := current_publication(item))
    }
    wanted = {**recorded, **{item.date: None for item in found if item.expired and not item.is_published}}
    shown = _shown(context, table, wanted)
    return Comparison(
        published=len(recorded),
        differences=tuple(
            Difference(day, location, shown.get(day)) for day, location in wanted.items() if shown.get(day) != location
        ),
    )


def _shown(context: StageContext, table: TableDefinition, days: Collection[date]) -> Mapping[date, str]:
    """Returns the locations in the catalog. Empty if it has lost the table."""
    if not days:
        return {}
    try:
        return context.publisher.shown_locations(table, days)
    except InvariantBroken:
        return {}
