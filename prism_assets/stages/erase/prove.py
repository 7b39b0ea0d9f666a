"""The proof of an erasure: reads every object below the table's prefix again, and finds no matching row in any.

The proof reads all objects of the store, recorded or not. Objects written since the rule respect it, and are read, too.
Spool objects are staging objects, and stay: the proof counts them among its sources.
Manifests of Glue and the archive of PostgreSQL contain no values of rows. Manifests of Iceberg tables and column
metrics in PostgreSQL contain bounds, which are values: each must belong to an object that was read or searched
(`traces.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from prism_assets.domain.erasures.rules import Erasure
from prism_assets.domain.errors import ObjectMissing, PrismError
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.keys import QuarantineKey
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, listed
from prism_assets.domain.work.write import WriteTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.leases import Lease
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.search import AT_ONCE, load_quarantined, run_redactions, run_rewrites
from prism_assets.stages.erase.traces import ManifestBounds, forget_metrics, metrics_left

_EXAMPLES = 3


@dataclass
class _ProofTotals:
    """The totals so far."""

    objects: int = 0
    bytes: int = 0
    rows: int = 0
    lines: int = 0
    matches: int = 0
    undecided: int = 0
    """Rows on which the predicate fails. As in a conversion, they do not match."""
    bounds: ManifestBounds = field(default_factory=ManifestBounds)
    left: list[str] = field(default_factory=list)
    """Keys with a matching row, or with a line that may match."""
    unread: list[str] = field(default_factory=list)
    """Keys that could not be read."""


@dataclass(frozen=True)
class Unproved:
    """The reason why an erasure has no proof yet, and the keys with a matching row or a line that may match."""

    reason: str
    left: frozenset[str]


def prove(context: StageContext, table: TableDefinition, lease: Lease, erasure: Erasure) -> Unproved | None:
    """Reads everything and records the proof. Returns the reason if this fails."""
    forget_metrics(context, table, lease, erasure)
    read = _ProofTotals(bounds=ManifestBounds.load(context, table, erasure))
    keys = context.lake.keys(table)
    found = context.stores.list(context.lake.bucket, keys.root)
    left_out = (keys.archive_prefix, keys.all_spool_prefix)
    for part in _parts(item for item in found if not item.key.startswith(left_out)):
        _read_objects(context, table, erasure, [item for item in part if item.key.endswith(".parquet")], read)
        _read_lines(context, table, erasure, [item for item in part if item.key.endswith(".jsonl.gz")], read)
        context.progress(f"erase: {counted(read.objects, 'object')} read for the proof")
    if reason := _reason(context, read) or metrics_left(context, erasure):
        return Unproved(reason, frozenset(read.left))
    failpoint("erase.before_proof")
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        sources = erasures.load_sources(connection, erasure.erasure_id)
        erasures.record_proof(connection, erasure, _document(read, sources, erasure))
        failpoint("erase.in_proof")
    failpoint("erase.after_proof")
    return None


def _reason(context: StageContext, read: _ProofTotals) -> str | None:
    if unread := [*read.unread, *read.bounds.unread]:
        return (
            f"{listed(unread, _EXAMPLES)} could not be read, and may hold rows: repeat it when the store hands them out"
        )
    if not read.left:
        return read.bounds.left(read.left, context.settings.gc_age_hours)
    matches = counted(read.matches, "row or line still matches", "rows or lines still match")
    return (
        f"{matches}, or cannot be judged, in {listed(read.left, _EXAMPLES)}: garbage collection deletes these when "
        "no reader is sent there any more; `prism gc --dry-run` says what it keeps"
    )


def _document(read: _ProofTotals, sources: Sequence[tuple[str, bool]], erasure: Erasure) -> dict[str, Any]:
    certain = sum(certain for _, certain in sources)
    return {
        "digest": erasure.digest,
        "objects": read.objects,
        "bytes": read.bytes,
        "rows": read.rows,
        "lines": read.lines,
        "matches": read.matches,
        "undecided": read.undecided,
        "sources": certain,
        "possible_sources": len(sources) - certain,
        "open_rows": erasure.open_rows,
    }


def _parts(listed: Iterator[ObjectInfo]) -> Iterator[Sequence[ObjectInfo]]:
    while part := list(islice(listed, AT_ONCE)):
        yield part


def _read_objects(
    context: StageContext, table: TableDefinition, erasure: Erasure, part: Sequence[ObjectInfo], read: _ProofTotals
) -> None:
    tasks = [
        WriteTask(
            number=number,
            inputs=(
                DataFile(
                    bucket=context.lake.bucket,
                    key=item.key,
                    content_length=item.content_length,
                    row_count=-1,
                    fingerprint=0,
                ),
            ),
            output_key=None,
            erasures=(erasure.rule,),
            table_id=table.table_id,
            definition_version=table.version,
        )
        for number, item in enumerate(part)
    ]
    for result in run_rewrites(context, table, tasks):
        item = part[result.number]
        if result.failure is not None:
            if not _is_gone(context, item.key):
                read.unread.append(item.key)
            continue
        read.objects += 1
        read.bytes += item.content_length
        read.rows += result.rows
        read.matches += result.matching
        read.undecided += result.undecided
        if result.matching:
            read.left.append(item.key)
        else:
            read.bounds.discard(item.key)


def _read_lines(
    context: StageContext, table: TableDefinition, erasure: Erasure, part: Sequence[ObjectInfo], read: _ProofTotals
) -> None:
    keys = context.lake.keys(table)
    found = [
        (named.staging_object_id, item.key) for item in part if isinstance(named := keys.parse(item.key), QuarantineKey)
    ]
    quarantined = load_quarantined(context, table, [erasure.rule], found)
    key_of = {item.task.task_id: item.key for item in quarantined}
    strange = {item.key for item in part} - set(key_of.values())
    read.unread += [key for key in sorted(strange) if not _is_gone(context, key)]
    for result in run_redactions(context, quarantined) if quarantined else ():
        key = key_of[result.staging_object_id]
        if result.failure is not None:
            if not _is_gone(context, key):
                read.unread.append(key)
            continue
        read.lines += result.lines
        read.matches += result.erased + result.withheld
        if result.changed:
            read.left.append(key)


def _is_gone(context: StageContext, key: str) -> bool:
    """Whether an object was deleted since its listing. A refused object may still exist."""
    try:
        context.stores.head(context.lake.bucket, key)
    except ObjectMissing:
        return True
    except PrismError:
        return False
    return False
