"""Compares manifests of an installation of the published design with their objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prism_assets.domain.errors import InvariantBroken, ObjectMissing
from prism_assets.domain.files.keys import MergedObjectKey, TableKeys
from prism_assets.domain.findings import Finding
from prism_assets.domain.tables.adopted import AdoptedTable
from prism_assets.domain.text import counted
from prism_assets.metadata.published_design import AdoptedDay
from prism_assets.objectstore.manifests import ManifestEntry, read_manifest
from prism_assets.stages.context import StageContext

REMEDY_OF_DAY = "Keep all staging objects of the day: `prism history` makes its rows again in a new table"
"""The remedy for a day of the former lake whose objects are wrong."""


def compare_manifest(context: StageContext, table: AdoptedTable, keys: TableKeys, day: AdoptedDay) -> Iterator[Finding]:
    """Yields the faults of a switched day's manifest."""
    if not day.switched or day.version <= 0:
        return
    key = keys.manifest(day.date, day.version, day.version)
    for invariant, kind, says in _faults(context, keys, key, day):
        yield Finding(
            kind=kind,
            table=str(table.name),
            date=day.date,
            says=f"the manifest s3://{keys.bucket}/{key} {says}",
            remedy=REMEDY_OF_DAY,
            invariant=invariant,
        )


def _faults(context: StageContext, keys: TableKeys, key: str, day: AdoptedDay) -> Iterator[tuple[str, str, str]]:
    """Yields invariant, kind and fact."""
    try:
        entries = read_manifest(context.stores.get(keys.bucket, key))
    except ObjectMissing:
        yield "I4", "missing_manifest", "does not exist, and readers of the day fail"
        return
    except InvariantBroken as error:
        yield "I4", "broken_manifest", f"cannot be read: {error}"
        return
    at = f"s3://{keys.bucket}/"
    named = {item.url.removeprefix(at) for item in entries}
    stored = {
        item.key: item.content_length
        for prefix in (keys.live_prefix(day.date), keys.delayed_prefix(day.date), keys.merged_prefix(day.date))
        for item in context.stores.list(keys.bucket, prefix)
        if item.key in named
    }
    wrong = [item.url for item in entries if stored.get(item.url.removeprefix(at)) != item.content_length]
    if wrong:
        yield "I4", "broken_manifest", f"names {counted(len(wrong), 'object')} without that length, such as {wrong[0]}"
    if doubled := [url for url, count in Counter(item.url for item in entries).items() if count > 1]:
        yield "I2", "doubled_rows", f"names {doubled[0]} twice, and readers see its rows twice"
    if odd := _break_of(keys, [item for item in entries if item.url not in doubled], day.version):
        yield odd


def _break_of(keys: TableKeys, entries: Sequence[ManifestEntry], version: int) -> tuple[str, str, str] | None:
    """Returns the first place where the merged objects are no chain from 0 to the version."""
    parsed = [keys.parse(item.url.removeprefix(f"s3://{keys.bucket}/")) for item in entries]
    ranges = sorted((item.lower_bound, item.upper_bound) for item in parsed if isinstance(item, MergedObjectKey))
    end = 0
    for lower, upper in ranges:
        if lower < end:
            return "I2", "doubled_rows", f"has small objects {lower + 1} to {end} in two merged objects"
        if lower > end:
            return "I1", "gap_in_manifest", f"lacks small objects {end + 1} to {lower}"
        end = upper
    return ("I1", "gap_in_manifest", f"lacks small objects {end + 1} to {version}") if end < version else None
