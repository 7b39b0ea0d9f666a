"""Compares catalogs with PostgreSQL: the location of each day, and with `deep` the entries of its manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from prism_assets.domain.days.partitions import Partition, current_publication, wanted_publication
from prism_assets.domain.days.publishers import words_of
from prism_assets.domain.errors import InvariantBroken, ObjectMissing
from prism_assets.domain.findings import Finding
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.invariants import begin_reading
from prism_assets.stages.catalog.content import load_content
from prism_assets.stages.catalog.differences import Comparison, compare_locations
from prism_assets.stages.context import StageContext

_LOOKS = 3
_PAUSE_SECONDS = 0.5


def look_at_catalog(context: StageContext, table: TableDefinition) -> tuple[int, list[Finding]]:
    """Returns the number of days a catalog should show, and findings on missing or different locations.

    A difference counts only if it persists over several comparisons with pauses, because a run publishes before it
    records.
    """
    catalog = words_of(context.publisher.name).catalog
    seen = _compare(context, table)
    differences = set(seen.differences)
    for _ in range(_LOOKS - 1):
        if not differences:
            break
        time.sleep(_PAUSE_SECONDS)
        differences &= set(_compare(context, table).differences)
    found = sorted(differences, key=lambda item: item.date)
    return seen.published, [
        Finding(
            invariant="I4" if item.shown else "I1",
            kind="catalog",
            table=str(table.name),
            date=item.date,
            says=f"{catalog} shows {item.shown or 'no such partition'}, on record is {item.recorded or 'none'}",
            remedy=f"Run `prism catalog --republish --table {table.name}`",
        )
        for item in found
    ]


def _compare(context: StageContext, table: TableDefinition) -> Comparison:
    with context.database.begin() as connection:
        begin_reading(connection)
        found = partitions.load_table_partitions(connection, table.table_id)
        found = publications.as_shown_by(connection, context.publisher.name, found)
    return compare_locations(context, table, found)


def look_at_manifest(context: StageContext, table: TableDefinition, found: Partition) -> list[Finding]:
    """Compares the manifest of an unchanging day with the ranges and objects on record."""
    with context.database.begin() as connection:
        begin_reading(connection)
        stored = partitions.load_partitions(connection, [found.partition_id]).values()
        (partition,) = publications.as_shown_by(connection, context.publisher.name, list(stored))
        shown = current_publication(partition)
        if shown is None or shown.is_live_prefix or shown != wanted_publication(partition):
            return []
        content = load_content(connection, context.lake.keys(table), partition, shown)
    day = partition.date
    wanted = {file.url: file.content_length for file in content.files}
    key = context.publisher.list_key(table, day, shown)
    if key is None:
        return []
    return [
        Finding(
            invariant="I4",
            kind="manifest_entries",
            table=str(table.name),
            date=day,
            says=f"the {words_of(context.publisher.name).file_list} {key} {wrong}",
            remedy="Keep it, and report it",
        )
        for wrong in _wrong_entries(context, key, wanted)
    ]


def _wrong_entries(context: StageContext, key: str, wanted: Mapping[str, int]) -> Iterator[str]:
    try:
        entries = context.publisher.read_list(key)
    except ObjectMissing:
        return  # the listing of the store reports it
    except InvariantBroken as error:
        yield f"cannot be read: {error}"
        return
    if len(set(entries)) != len(entries):
        yield "names an object twice"
    right = {entry.url for entry in entries if entry.content_length in (None, wanted.get(entry.url))}
    lacks, has = wanted.keys() - right, {entry.url for entry in entries} - (right & wanted.keys())
    if lacks:
        yield f"lacks {counted(len(lacks), 'object that is', 'objects that are')} committed, such as {min(lacks)}"
    if has:
        yield f"names {counted(len(has), 'object that is', 'objects that are')} not on record so, such as {min(has)}"
