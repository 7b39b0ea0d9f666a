"""Compares the store with PostgreSQL: missing or damaged objects, and objects that readers see without any record.

PostgreSQL is read first, then the store is listed. Differences are checked a second time: changes by a running batch,
merge or repair are gone by then, and damage is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date

from prism_assets.domain.days.partitions import Partition, current_publication
from prism_assets.domain.days.publishers import words_of
from prism_assets.domain.errors import PrismError
from prism_assets.domain.files.data_file import DataFile, MergedRange
from prism_assets.domain.files.garbage import upload_of
from prism_assets.domain.files.keys import SmallObjectKey
from prism_assets.domain.findings import Finding
from prism_assets.domain.problems import Problem
from prism_assets.domain.records.folding import RecordObject
from prism_assets.domain.records.rebuild import how_to_mend
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, listed
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.invariants import begin_reading
from prism_assets.metadata.records import record_objects
from prism_assets.stages.context import StageContext
from prism_assets.stages.repair.plan import find_suspects, list_day, load_needed

_LISTINGS = 8
_EXAMPLES = 3


@dataclass
class StoredObjects:
    """Findings in the store, and the number of examined objects."""

    objects: int = 0
    findings: list[Finding] = field(default_factory=list)
    unseen: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class _TableFindings:
    objects: int
    findings: frozenset[Finding]


def look_at_store(context: StageContext, tables: Sequence[TableDefinition]) -> StoredObjects:
    """Examines merged objects and manifests of each table, and small objects of each day that needs them.

    Two listings each.
    """
    found = StoredObjects()
    with ThreadPoolExecutor(_LISTINGS) as pool:
        for table, seen in zip(tables, pool.map(lambda table: _merged_twice(context, table), tables), strict=True):
            _note(found, seen, str(table.name))
        with context.database.begin() as connection:
            begin_reading(connection)
            needed = partitions.load_needed(connection, [table.table_id for table in tables], None)
        known = {table.table_id: table for table in tables}
        days = [(known[item.table_id], item) for item in needed]
        for (table, _), seen in zip(days, pool.map(lambda day: _small_twice(context, *day), days), strict=True):
            _note(found, seen, str(table.name))
    return found


def _note(found: StoredObjects, seen: _TableFindings | PrismError, table: str) -> None:
    if isinstance(seen, PrismError):
        found.unseen.append(Problem.of(seen, table))
    else:
        found.objects += seen.objects
        found.findings += sorted(seen.findings, key=str)


def _merged_twice(context: StageContext, table: TableDefinition) -> _TableFindings | PrismError:
    try:
        first = _look_at_merged(context, table)
        return first if not first.findings else _lasting(first, _look_at_merged(context, table))
    except PrismError as error:
        return error


def _small_twice(context: StageContext, table: TableDefinition, partition: Partition) -> _TableFindings | PrismError:
    try:
        first = _look_at_small(context, table, partition)
        return first if not first.findings else _lasting(first, _look_at_small(context, table, partition))
    except PrismError as error:
        return error


def _lasting(first: _TableFindings, second: _TableFindings) -> _TableFindings:
    return _TableFindings(second.objects, first.findings & second.findings)


def _look_at_merged(context: StageContext, table: TableDefinition) -> _TableFindings:
    """Compares ranges, record objects and manifests on record with one listing of the table's merged objects."""
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        begin_reading(connection)
        found = partitions.load_table_partitions(connection, table.table_id)
        ranges = merge_ranges.load_table_chains(connection, keys, table.table_id)
    folders = [keys.all_merged_prefix, keys.all_symlinks_prefix, *(keys.record_prefixes if table.join else ())]
    listed = {
        item.key: item.content_length for folder in folders for item in context.stores.list(context.lake.bucket, folder)
    }
    findings = set[Finding]()
    expired = {item.date for item in found if item.expired}
    if table.join is not None:
        with context.database.begin() as connection:
            begin_reading(connection)
            records = record_objects.load_current(connection, keys, table.table_id)
        findings |= set(_damaged_records(table, [item for item in records if item.date not in expired], listed))
    for day, chain in ranges.items():
        if day in expired:
            continue
        findings |= set(_damaged_ranges(table, day, chain, listed))
    for catalog in context.for_catalogs([table])[table.table_id]:
        with context.database.begin() as connection:
            begin_reading(connection)
            seen = publications.as_shown_by(connection, catalog.publisher.name, found)
        for partition in seen:
            findings |= set(_missing_list(catalog, table, partition, listed))
    return _TableFindings(len(listed), frozenset(findings))


def _damaged_records(
    table: TableDefinition, records: Sequence[RecordObject], listed: Mapping[str, int]
) -> Iterator[Finding]:
    for item in records:
        if wrong := _unlike(item, listed):
            yield Finding(
                invariant="I4",
                kind="record_object",
                table=str(table.name),
                date=item.date,
                says=f"the object {item.key} of a fold {wrong}",
                remedy=how_to_mend(table.name),
            )


def _damaged_ranges(
    table: TableDefinition, day: date, chain: Sequence[MergedRange], listed: Mapping[str, int]
) -> Iterator[Finding]:
    for item in chain:
        if wrong := _unlike(item, listed):
            yield Finding(
                invariant="I4",
                kind="merged_object",
                table=str(table.name),
                date=day,
                says=f"the merged object {item.key} {wrong}",
                remedy="Restore it (a version of the bucket, a backup); its small objects may still be there",
            )


def _unlike(file: DataFile, listed: Mapping[str, int]) -> str | None:
    """Describes the difference of an object from a listing. None if it exists with its length."""
    length = listed.get(file.key)
    if length == file.content_length:
        return None
    return "is missing" if length is None else f"has {length} bytes, not {file.content_length}"


def _missing_list(
    context: StageContext, table: TableDefinition, partition: Partition, listed: Mapping[str, int]
) -> Iterator[Finding]:
    shown = current_publication(partition)
    if shown is None or shown.is_live_prefix:
        return
    key = context.publisher.list_key(table, partition.date, shown)
    if key is not None and key not in listed:
        yield Finding(
            invariant="I4",
            kind="manifest",
            table=str(table.name),
            date=partition.date,
            says=f"the {words_of(context.publisher.name).file_list} {key} that readers are sent to is missing",
            remedy=f"Run `prism catalog --republish --table {table.name}`",
        )


def _look_at_small(context: StageContext, table: TableDefinition, found: Partition) -> _TableFindings:
    """Compares the needed small objects of one day with a listing.

    In an open day, also finds objects without a record.
    """
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        begin_reading(connection)
        partition = partitions.load_partitions(connection, [found.partition_id])[found.partition_id]
        known = load_needed(connection, keys, table, partition)
    listing = list_day(context, keys, partition, known)
    findings = {
        Finding(
            invariant="I4",
            kind="small_object",
            table=str(table.name),
            date=partition.date,
            says=f"the small object {suspect.key} {suspect.fault}",
            remedy=f"Run `prism repair --table {table.name} --date {partition.date}`",
        )
        for suspect in find_suspects(known, listing.lengths, deep=False)
    }
    if partition.is_open:
        findings |= set(_strangers(context, table, partition, listing.unknown))
    return _TableFindings(len(known), frozenset(findings))


def _strangers(
    context: StageContext, table: TableDefinition, partition: Partition, unknown: Sequence[str]
) -> Iterator[Finding]:
    """Yields findings on objects in a live prefix that no batch has committed or may still commit.

    Call it after the listing: an upload that is over by then, or foreign, stays so for ever.
    """
    keys = context.lake.keys(table)
    uploads = {key: upload_of(named) for key in unknown if isinstance(named := keys.parse(key), SmallObjectKey)}
    with context.database.begin() as connection:
        begin_reading(connection)
        records = small_objects.trace_uploads(connection, table.table_id, set(uploads.values()))
    strays = [key for key, upload in uploads.items() if records[upload].is_stray]
    if strays:
        yield _stranger(
            table,
            partition,
            "stray",
            strays,
            "written by tasks that outlived their drivers: readers see rows twice, or rows of given-up objects",
            f"Run `prism repair --table {table.name} --date {partition.date}`, which removes them",
        )
    others = [key for key in unknown if key not in uploads or records[uploads[key]].is_foreign]
    if others:
        yield _stranger(
            table,
            partition,
            "foreign",
            others,
            "written by somebody else, or before PostgreSQL was restored, and readers see them",
            "After a restore, `prism run` and then `prism repair` replace or remove them; otherwise find out who "
            "put them there, and remove them",
        )


def _stranger(
    table: TableDefinition, partition: Partition, kind: str, keys: Sequence[str], what: str, remedy: str
) -> Finding:
    return Finding(
        invariant="I2",
        kind=kind,
        table=str(table.name),
        date=partition.date,
        says=f"{counted(len(keys), 'object lies', 'objects lie')} under live/, {what}: {listed(keys, _EXAMPLES)}",
        remedy=remedy,
    )


def partitions_of(context: StageContext, tables: Iterable[TableDefinition]) -> list[tuple[TableDefinition, Partition]]:
    """Returns all partitions of tables, by table and date."""
    found = []
    for table in tables:
        with context.database.begin() as connection:
            begin_reading(connection)
            found += [(table, item) for item in partitions.load_table_partitions(connection, table.table_id)]
    return found
