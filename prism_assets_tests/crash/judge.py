"""Judges a lake at rest by the invariants of the protocol. Each function returns sentences, none if all is well.

The judge knows the rows from the played life, not from the platform's own records.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

import sqlalchemy

from prism_assets.domain.findings import Finding
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query
from prism_assets.stages.findings.groups import GROUPS
from prism_assets.stages.findings.objects import UNREAD_OBJECTS
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.status import read_status
from prism_assets_tests import nested, snapshots
from prism_assets_tests.crash.life import Life
from prism_assets_tests.crash.reader import IdReader, View
from prism_assets_tests.parquet import read_parquet
from prism_assets_tests.requests import seen, wanted
from prism_assets_tests.world import World

_KEYS = re.compile(
    r"(?:[0-9a-f]{4}\.[^/]+/(?:(?:live|delayed|merged)/dt=\d{4}-\d\d-\d\d/(?:prism-\d{19}(?:-g\d+)?(?:-r\d+)?|part-\d{19}-\d{19}(?:-r\d+)?)\.parquet"
    r"|(?:records|hidden|pending)/dt=\d{4}-\d\d-\d\d/fold-\d{19}-\d{5}-\d{8}\.parquet"
    r"|iceberg/metadata/(?:\d{5}-[-0-9a-f]{36}\.metadata\.json|(?:snap-\d+-0-)?[-0-9a-f]{36}(?:-m0)?\.avro)"
    r"|merged/dt=\d{4}-\d\d-\d\d/manifest-[-r\d]+\.json|symlink/dt=\d{4}-\d\d-\d\d/version-[-r\d]+/objects\.txt"
    r"|quarantine/dt=\d{4}-\d\d-\d\d/prism-\d{19}(?:-g\d+)?(?:-r\d+)?\.jsonl\.gz|archive/[a-z_]+/\d{19}-\d{19}-[0-9a-f]{12}\.parquet))"
)


def judge(world: World, life: Life) -> list[str]:
    """Checks every invariant at rest after a life."""
    found: list[str] = []
    with world.context.database.begin() as connection:
        for check in (_ledger, _small_objects, _ranges, _nothing_running, _everything_switched):
            found += check(connection, life)
    found += _rows(world, life)
    found += _archive(world, life)
    found += _records(world)
    found += _quarantined_lines(world, life)
    found += _objects(world)
    found += _garbage(world, life)
    found += _dropped(world, life)
    found += _nested_values(world, life)
    for table in life.shown:
        found += _snapshots(world, life, table)
    found += _nothing_waits(world, life)
    found += (f"I1 {item}" for item in _divided(world))
    return found


def divided(world: World) -> Iterator[str]:
    """I1: right after a death, no line of a prefix is in none of its tables, or in two.

    Tables may have read by routes of different times, as long as one of them is to be rebuilt.
    """
    if world.context.database.has_table("prism_streams"):
        yield from (f"I1 {item}" for item in _divided(world) if item.kind != "mixed_routes")


def _divided(world: World) -> tuple[Finding, ...]:
    return read_findings(world.context, None, [GROUPS], now=datetime(2026, 3, 1, tzinfo=timezone.utc))


def _rows(world: World, life: Life) -> Iterator[str]:
    """I1, I2, I4: readers see every accepted row once, in its partition, in existing objects."""
    reader, expected = IdReader(world.settings), life.expected()
    for table in life.tables:
        views = reader.look(table)
        yield from _lake_rows(reader, world, table, views)
        yield from _linked_rows(reader, table, views, table in life.linked)
        for day in sorted({*views, *(day for name, day in expected if name == table)}):
            wanted = expected.get((table, day), set())
            counts = Counter(views[day].ids) if day in views else Counter[int]()
            if lost := wanted - set(counts):
                yield f"I1 {table} {day}: {len(lost)} of {len(wanted)} rows are lost"
            if strange := set(counts) - wanted:
                yield f"I1 {table} {day}: {len(strange)} rows are of other partitions or of none"
            if doubled := [number for number, count in counts.items() if count > 1]:
                yield f"I2 {table} {day}: {len(doubled)} rows are there more than once"
            yield from (f"I4 {table} {day}: {fault}" for fault in (views[day].faults if day in views else ()))
            yield from (
                f"I4 {url} has a narrower column than Glue" for url in (views[day].narrow if day in views else ())
            )


def _linked_rows(reader: IdReader, table: str, views: dict[date, View], is_linked: bool) -> Iterator[str]:
    """I1, I2, I4: readers of symlinks see the same as others, or nothing if the table has no symlinks."""
    shown = reader.look(table.replace(".", "_symlink."))
    if {day: sorted(view.ids) for day, view in shown.items()} != (
        {day: sorted(view.ids) for day, view in views.items()} if is_linked else {}
    ):
        yield f"I1 {table}: readers of symlinks see other rows, or days"
    yield from (f"I4 {table} {day}, by symlinks: {fault}" for day, view in shown.items() for fault in view.faults)


def _lake_rows(reader: IdReader, world: World, table: str, views: dict[date, View]) -> Iterator[str]:
    """I1, I2, I4: DuckLake clients see the same as readers of Glue once all is published."""
    shown = reader.look_at_lake(world.context.database, table)
    for day in sorted({*views, *shown}):
        if day not in shown or day not in views:
            yield f"I1 {table} {day}: only {'Glue' if day in views else 'DuckLake'} shows it"
            continue
        if sorted(shown[day].ids) != sorted(views[day].ids):
            yield f"I1 {table} {day}: DuckLake shows {len(shown[day].ids)} ids, Glue {len(views[day].ids)}, or others"
        yield from (f"I4 {table} {day}: {fault}" for fault in shown[day].faults)


def _snapshots(world: World, life: Life, name: str) -> Iterator[str]:
    """I1, I2, I4 for the Iceberg table. Nothing of the table waits."""
    table = world.iceberg_table(name)
    found = table.scan(selected_fields=("id", "dt")).to_arrow()
    counts = Counter(zip(found.column("dt").to_pylist(), found.column("id").to_pylist(), strict=True))
    wanted = {(day, number) for (of, day), ids in life.expected().items() if of == name for number in ids}
    if lost := wanted - set(counts):
        yield f"I1 the Iceberg table of {name} lacks {len(lost)} of {len(wanted)} rows"
    if strange := set(counts) - wanted:
        yield f"I1 the Iceberg table of {name} has {len(strange)} rows of other days or of none"
    if doubled := [row for row, count in counts.items() if count > 1]:
        yield f"I2 the Iceberg table of {name} has {len(doubled)} rows more than once"
    yield from (f"I4 {fault}" for fault in snapshots.faults(table, world.root / "buckets"))
    with world.context.database.begin() as connection:
        statement = "SELECT count(*) FROM prism_publications WHERE publisher = 'iceberg' AND dirty"
        if days := connection.exec_driver_sql(statement).scalar_one():
            yield f"I10 {days} days wait for a commit to Iceberg tables"
        for row in connection.exec_driver_sql("SELECT * FROM prism_iceberg_tables"):
            at_rest = (row.state, row.snapshot_id) == ("active", table.metadata.current_snapshot_id)
            if row.identifier == ".".join(table.name()) and not at_rest:
                yield f"I10 {row.identifier} is {row.state} at {row.snapshot_id}: {row.last_error}"


def _nested_values(world: World, life: Life) -> Iterator[str]:
    """I1: readers of Glue and Iceberg see the parts of each row, and of a document also the values around it."""
    owners = {number: drop.name for drop in life.drops if drop.is_document for number, _ in drop.rows}
    for table in life.nested:
        names = [
            "id",
            *nested.NAMES,
            *(["owner"] if any(drop.is_document and drop.table == table for drop in life.drops) else []),
        ]
        rows = run_query(LakeReader(world.settings), f"SELECT {', '.join(names)} FROM {table}").rows
        through_glue = [dict(zip(names, row, strict=True)) for row in rows]
        yield from _wrong_parts(f"{table} in Glue", through_glue, owners, lambda values: values)
        through_iceberg = world.iceberg_table(table).scan(selected_fields=tuple(names)).to_arrow().to_pylist()
        yield from _wrong_parts(f"the Iceberg table of {table}", through_iceberg, owners, nested.as_pyiceberg_shows)


def _wrong_parts(
    what: str, rows: list[nested.Values], owners: Mapping[int, str], shown: Callable[[nested.Values], nested.Values]
) -> Iterator[str]:
    for row in rows:
        number = row.pop("id")
        wanted = shown(nested.stored(number)) | ({"owner": owners[number]} if "owner" in row else {})
        if row != wanted:
            yield f"I1 {what} has {row} in the row {number}, not {wanted}"


def _ledger(connection: sqlalchemy.Connection, life: Life) -> Iterator[str]:
    """I9: for each object the counts of lines, rows, quarantined and filtered lines are right, each on its own."""
    rows = connection.exec_driver_sql(
        "SELECT o.*, s.rows, q.aside, t.schema_name || '.' || t.table_name AS name FROM prism_staging_objects o "
        "JOIN prism_tables t USING (prism_table_id) "
        "LEFT JOIN LATERAL (SELECT coalesce(sum(row_count + x.rows_erased), 0) AS rows FROM prism_small_objects x "
        "WHERE x.prism_staging_object_id = o.prism_staging_object_id) s ON true "
        "LEFT JOIN LATERAL (SELECT coalesce(sum(line_count), 0) AS aside FROM prism_quarantine x "
        "WHERE x.prism_staging_object_id = o.prism_staging_object_id) q ON true"
    )
    divided = {(drop.key, drop.table) for drop in life.drops if drop.whole}
    known = {
        row.object_key if (row.object_key, row.name) not in divided else (row.object_key, row.name): row for row in rows
    }
    for drop in life.drops:
        row = known.pop((drop.key, drop.table) if drop.whole else drop.key, None)
        if drop.archived:
            yield from ([f"I9 {drop.key} is on record, and its days expired long ago"] if row else [])
            continue
        if drop.gone:
            yield from ([f"I9 {drop.key} is on record, and its table is gone"] if row else [])
            continue
        if row is None:
            yield f"I9 {drop.key} was never registered"
            continue
        ledger = (row.lines_in, row.rows_out, row.rows_quarantined, row.rows_filtered)
        said = (row.state, *ledger, int(row.rows), int(row.aside))
        if drop.vanishes:
            if said[:4] != ("failed", None, None, None) or said[5:] != (0, 0):
                yield f"I9 {drop.key} vanished, and is {said}"
            continue
        from_aside = life.erased_aside(drop)
        if row.rows_elsewhere != drop.elsewhere:
            yield f"I9 {drop.key}: {drop.table} left {row.rows_elsewhere} lines to others, not {drop.elsewhere}"
        left_out = from_aside + sum(life.is_erased(drop.table, number) for number, _ in drop.kept)
        if row.rows_erased not in (0, left_out):
            yield f"I9 {drop.key}: {row.rows_erased} lines were left out as erased, not {left_out}"
        rows_out, aside = len(drop.kept) - row.rows_erased + from_aside, drop.set_aside - from_aside
        wanted = ("done", drop.lines, rows_out, aside, drop.filtered, rows_out, aside)
        if said != wanted:
            yield (
                f"I9 {drop.key}: state, lines, rows, set aside, filtered, rows and lines in objects are {said}, not "
                f"{wanted}"
            )
    yield from (f"I9 {key} was registered, and nobody dropped it" for key in known)


def _small_objects(connection: sqlalchemy.Connection, _life: Life) -> Iterator[str]:
    """Live objects have ids up to the close of their partition; the highest recorded id is right."""
    for row in connection.exec_driver_sql(
        "SELECT p.partition_date, max(s.prism_small_object_id) FILTER (WHERE NOT s.delayed) AS last_live, "
        "max(s.prism_small_object_id) AS last, p.last_live_object_id, p.last_object_id FROM prism_partitions p "
        "JOIN prism_small_objects s USING (prism_partition_id) GROUP BY p.prism_partition_id"
    ):
        if row.last_live_object_id is not None and (row.last_live or 0) > row.last_live_object_id:
            yield f"{row.partition_date}: live object {row.last_live} came behind {row.last_live_object_id}, the last"
        if row.last != row.last_object_id:
            yield f"{row.partition_date}: the last object is {row.last}, recorded is {row.last_object_id}"


def _ranges(connection: sqlalchemy.Connection, _life: Life) -> Iterator[str]:
    """I5: the ranges of a partition are one gapless chain, and hold the rows of the objects they cover."""
    ends: dict[int, int] = {}
    for row in connection.exec_driver_sql(
        "SELECT r.*, s.*, p.expire_time FROM prism_merge_ranges r LEFT JOIN LATERAL (SELECT count(*) AS objects, "
        "coalesce(sum(x.row_count + x.rows_erased), 0) AS covered, "
        "coalesce(sum(CAST(x.fingerprint AS numeric) + x.erased_fingerprint), 0) AS prints "
        "FROM prism_small_objects x WHERE x.prism_partition_id = r.prism_partition_id "
        "AND x.prism_small_object_id > r.lower_bound AND x.prism_small_object_id <= r.upper_bound) s ON true "
        "JOIN prism_partitions p USING (prism_partition_id) ORDER BY r.prism_partition_id, r.upper_bound"
    ):
        where = f"I5 partition {row.prism_partition_id}: range {row.lower_bound}-{row.upper_bound}"
        if row.lower_bound != (ends.get(row.prism_partition_id) if row.upper_bound else None):
            yield f"{where} does not begin where the one before it ends"
        ends[row.prism_partition_id] = row.upper_bound
        said = row.row_count + row.rows_erased, (row.fingerprint + row.erased_fingerprint) % 2**64
        if row.objects == 0 and row.expire_time is not None:
            continue  # the covered objects are archived
        if row.upper_bound and (int(row.covered), int(row.prints) % 2**64) != said:
            yield f"{where} has {said[0]} rows, and covers {row.covered} in {row.objects} objects, or others"


def _nothing_running(connection: sqlalchemy.Connection, _life: Life) -> Iterator[str]:
    """I10: nothing is claimed, running, waiting or parked."""
    for what, statement in (
        ("batches run", "SELECT count(*) FROM prism_stream_batches WHERE state = 'running'"),
        (
            "staging objects are not done",
            "SELECT count(*) FROM prism_staging_objects WHERE state IN ('pending', 'claimed')",
        ),
        ("merge jobs are left", "SELECT count(*) FROM prism_merge_jobs"),
        ("publications were not seen to end", "SELECT count(*) FROM prism_publication_intents"),
    ):
        if count := connection.exec_driver_sql(statement).scalar_one():
            yield f"I10 {count} {what}"


def _everything_switched(connection: sqlalchemy.Connection, life: Life) -> Iterator[str]:
    """I10: every day is over, so every partition is switched, fully merged, and published."""
    rows = connection.exec_driver_sql(
        "SELECT t.schema_name || '.' || t.table_name AS name, p.*, q.dirty FROM prism_partition_states p "
        "JOIN prism_tables t ON t.prism_table_id = p.table_id "
        "LEFT JOIN prism_publications q ON q.prism_partition_id = p.partition_id"
    )
    found: set[tuple[str, date]] = set()
    for row in rows:
        found.add((row.name, row.date))
        state = (row.switched, row.current_version, row.desired_version, row.published_object_id)
        last = row.last_object_id or row.desired_version  # of days of records: the last fold with a change of them
        if row.expired is not ((row.name, row.date) in life.ended):
            yield f"I10 {row.name} {row.date} is {'' if row.expired else 'not '}expired"
        if row.expired:
            if state != (True, -1, last, 0) or row.dirty is not False:
                yield f"I10 {row.name} {row.date} is expired, and not at rest: {state}"
            continue
        if state != (True, last, last, last) or row.published_revision != row.revision or row.dirty is not False:
            yield f"I10 {row.name} {row.date} is not at rest at {last}: {state}"
    yield from (f"I1 {table} {day} has no partition" for table, day in set(life.expected()) - found)


def _records(world: World) -> Iterator[str]:
    """J1, J2: readers see the records made by the changes in the log, each once."""
    for table in world.context.choose_tables(None):
        if table.join is not None and seen(world, table) != wanted(world, table):
            yield f"J1 {table.name} shows other records than the changes in its log make"


def _quarantined_lines(world: World, life: Life) -> Iterator[str]:
    """I1: each quarantined line is in the lake, in recorded objects."""
    lake = world.settings.bucket
    with world.context.database.begin() as connection:
        statement = "SELECT DISTINCT object_key FROM prism_quarantine WHERE object_key IS NOT NULL"
        keys = list(connection.exec_driver_sql(statement).scalars())
    lines = sum(len(gzip.decompress(world.context.stores.get(lake, key)).splitlines()) for key in keys)
    wanted = sum(drop.set_aside - life.erased_aside(drop) for drop in life.drops if not drop.vanishes)
    if lines != wanted:
        yield f"I1 {lines} lines lie in quarantine, not {wanted}"


def _archive(world: World, life: Life) -> Iterator[str]:
    """I9: rows of deleted objects are unchanged in the archive."""
    wanted = {drop.key: (drop.lines, len(drop.kept)) for drop in life.drops if drop.archived}
    listed = world.context.stores.list(world.settings.bucket, "")
    bodies = [
        world.context.stores.get(world.settings.bucket, item.key)
        for item in listed
        if "/archive/staging_objects/" in item.key
    ]
    found = {
        row["object_key"]: (row["lines_in"], row["rows_out"])
        for body in bodies
        for row in read_parquet(body).to_pylist()
    }
    if wanted != found:
        yield f"I9 the archive has {found}, not {wanted}"


def _objects(world: World) -> Iterator[str]:
    """I6: whatever ranges, folds and unmerged objects need is there, and no folder of a table has strange keys."""
    listed = world.context.stores.list(world.settings.bucket, "")
    lengths = {item.key: item.content_length for item in listed}
    with world.context.database.begin() as connection:
        rows: list[Any] = list(
            connection.exec_driver_sql(
                "SELECT p.partition_date AS day, r.* FROM prism_merge_ranges r "
                "JOIN prism_partitions p USING (prism_partition_id) WHERE r.lower_bound IS NOT NULL "
                "AND (p.expire_time IS NULL OR EXISTS (SELECT 1 FROM prism_small_objects s "
                "WHERE s.prism_partition_id = p.prism_partition_id))"
            )
        )
        folded: list[Any] = list(
            connection.exec_driver_sql("SELECT * FROM prism_record_objects WHERE replaced_by IS NULL")
        )
    for row in folded:
        end = f"/dt={row.date}/fold-{row.fold_id:019d}-{row.bucket_number:05d}-{row.cohort:08d}.parquet"
        if row.content_length not in [length for key, length in lengths.items() if key.endswith(end)]:
            yield f"I6 {end} is missing, or not as long as {row.content_length} bytes"
    for row in rows:
        again = f"-r{row.rewrite_id}" if row.rewrite_id else ""
        end = f"merged/dt={row.day}/part-{row.lower_bound:019d}-{row.upper_bound:019d}{again}.parquet"
        if row.content_length not in [length for key, length in lengths.items() if key.endswith(end)]:
            yield f"I6 {end} is missing, or not as long as {row.content_length} bytes"
    yield from (
        f"I6 {key} is a key of nothing"
        for key in lengths
        if re.match(r"[0-9a-f]{4}\.", key) and not _KEYS.fullmatch(key)
    )


def _garbage(world: World, life: Life) -> Iterator[str]:
    """I6: after garbage collection only objects needed by readers remain, and each deletion is on record."""
    if not life.collected:
        return
    reader = LakeReader(world.settings)
    left = {item.key for item in world.context.stores.list(world.settings.bucket, "")}
    root = f"s3://{world.settings.bucket}/"
    for table in life.collected:
        shown = [*reader.table(table).partitions]
        if table in life.linked:
            shown += [
                replace(partition, location=f"{partition.location}objects.txt")
                for partition in reader.table(table.replace(".", "_symlink.")).partitions
            ]
        needed = {item.url.removeprefix(root) for partition in shown for item in partition.objects}
        needed |= {partition.location.removeprefix(root) for partition in shown}
        ours = {key for key in left if f".{table}/" in key and "/quarantine/" not in key}
        yield from (f"I6 {key} is needed by nobody" for key in sorted(ours - needed))
        yield from (f"I6 {key} is not there" for key in sorted(needed - ours))
    with world.context.database.begin() as connection:
        logged = list(connection.exec_driver_sql("SELECT object_key, delete_time FROM prism_gc_log"))
    yield from (f"I6 {row.object_key} is logged as deleted, and there" for row in logged if row.object_key in left)
    yield from (f"I10 {row.object_key} is marked, and not settled" for row in logged if row.delete_time is None)
    if not logged:
        yield "I6 nothing was ever deleted"


def _dropped(world: World, life: Life) -> Iterator[str]:
    """I6, I10: the lake has no object of a dropped table, and all drops are over."""
    left = [item.key for item in world.context.stores.list(world.settings.bucket, "")]
    for table in {drop.table for drop in life.drops if drop.gone}:
        yield from (f"I6 {key} is of a table that was dropped" for key in left if f".{table}/" in key)
    with world.context.database.begin() as connection:
        for row in connection.exec_driver_sql("SELECT * FROM prism_drops WHERE state <> 'dropped'"):
            yield f"I10 the drop of {row.table_name} is {row.state}"


def _nothing_waits(world: World, life: Life) -> Iterator[str]:
    """I10: by the status nothing waits, and each given-up object is listed."""
    status = read_status(world.context, now=life.rests[-1].now)
    found = [item for table in status for item in table.findings]
    if (told := sum(item.count for item in found if item.kind == UNREAD_OBJECTS)) != life.vanished:
        yield f"I10 status tells of {told} objects that were given up, not of {life.vanished}"
    yield from (f"I10 {item}" for item in found if item.kind == "unproved_erasure")
    yield from (f"I10 {item}" for table in status for partition in table.partitions for item in partition.findings)
