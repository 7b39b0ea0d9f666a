"""Finds the partitions that a catalog run would move on now, cheaply enough to be asked every few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.lifecycle import Publish, catalog_due, next_steps, work_for_a_run
from prism_assets.domain.partitions import GLUE
from prism_assets.domain.publishers import wanted_publishers
from prism_assets.metadata import catalog_state, publication_notes
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.context import StageContext

PUBLISH = Publish.action
COMPARE = "compare"


@dataclass(frozen=True, kw_only=True)
class CatalogWork:
    """One partition that the next catalog run would move on: `step` is publish, close, switch, expire or withdraw.

    Or, with the date of today, a whole table that it would compare with the catalog: `step` is compare.
    """

    table: str
    date: date
    step: str


def find_catalog_work(context: StageContext, *, now: datetime) -> list[CatalogWork]:
    """All such partitions, by table and date, then tables. What only waits for something else is not among them."""
    tables = {table.table_id: table for table in context.choose_tables(None)}
    settings = context.settings
    with context.database.begin() as connection:
        due_to_compare = publication_notes.load_comparisons_due(
            connection, list(tables), settings.catalog_compare_seconds, settings.lease_seconds
        )
        pending = load_candidates(connection, list(tables.values()), now)
        found = [
            (item, next_steps(item, StoredFacts(connection, tables[item.table_id], for_people=False), now))
            for item in pending
        ]
        others = [
            (item, due)
            for number, names in catalog_state.load_publishers(connection, list(tables)).items()
            for name in names
            if name != GLUE and name in wanted_publishers(tables[number])
            for item in load_candidates(connection, [tables[number]], now, name)
            if (due := catalog_due(item))
        ]
    transitions = [
        CatalogWork(table=str(tables[item.table_id].name), date=item.date, step=move.action)
        for item, steps in found
        if (move := work_for_a_run(steps))
    ]
    transitions += [
        CatalogWork(table=str(tables[item.table_id].name), date=item.date, step=due.action) for item, due in others
    ]
    compared = [
        CatalogWork(table=str(tables[table_id].name), date=tables[table_id].today(now), step=COMPARE)
        for table_id, _ in due_to_compare
    ]
    return list(dict.fromkeys(transitions + compared))
