"""What the catalog shows otherwise than is recorded; checks and doctor tell of it, and change nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.partitions import Partition, current_publication
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import publications
from prism_assets.stages.context import StageContext


@dataclass(frozen=True)
class Difference:
    """A day that readers are not sent where they should be: `shown` is None where the catalog has no such day.

    `recorded` is None of one that is expired, and that the catalog should not have.
    """

    date: date
    recorded: str | None
    shown: str | None


@dataclass(frozen=True)
class Comparison:
    """How many days are recorded as published, and those that the catalog shows otherwise."""

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
    """Compares where readers of some partitions are sent with where they should be; asks the catalog once."""
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
    """Where the catalog sends readers; nowhere if it has lost the table."""
    if not days:
        return {}
    try:
        return context.publisher.shown_locations(table, days)
    except InvariantBroken:
        return {}
