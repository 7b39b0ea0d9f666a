"""Drift: what lines of a table hold that it has no column for."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.drift import MOST_KEYS, SeenField, still_undefined
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import undefined_fields
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The fields of a table that no column reads, by key and kind; `is_full` where there may be more keys."""

    table: TableDefinition
    fields: tuple[SeenField, ...]
    is_full: bool


def read_drift(context: StageContext, name: str) -> Drift:
    """What was seen in the lines of a table and has no column now. WrongUse for an unknown name."""
    (table,) = context.choose_tables([name])
    with context.database.begin() as connection:
        seen = undefined_fields.load_fields(connection, [table.table_id])
    return Drift(
        table=table,
        fields=tuple(still_undefined(table, seen)),
        is_full=len({field.key for field in seen}) >= MOST_KEYS,
    )
