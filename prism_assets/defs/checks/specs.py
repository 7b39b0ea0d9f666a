"""The checks of each stage, by stable names: Dagster keeps one status a name and asset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dagster import AssetCheckSeverity, AssetCheckSpec

from prism_assets.defs.keys import Stage, asset_key
from prism_assets.domain.amplification import MOST_FACTOR
from prism_assets.domain.iceberg_health import HEALTHY
from prism_assets.domain.tables import TableDefinition
from prism_assets.stages.checks import days, erasures, iceberg, intake, joins


@dataclass(frozen=True)
class CheckKind:
    """One check that every table of a stage has. A failed blocking one keeps what follows in its run from going on."""

    name: str
    about: str
    severity: AssetCheckSeverity = AssetCheckSeverity.WARN
    blocking: bool = False


_KINDS: dict[Stage, tuple[CheckKind, ...]] = {
    Stage.LIVE: (
        CheckKind(
            intake.ROWS_BALANCE,
            "Lines in = rows out + quarantined + filtered + erased, for each staging object; its rows are in objects.",
            AssetCheckSeverity.ERROR,
            blocking=True,
        ),
        CheckKind(intake.UNREAD_OBJECTS, "No staging object was given up, or written again after its conversion."),
        CheckKind(intake.SILENT_STREAMS, "Every stream that is read can be listed, and has found an object."),
        CheckKind(intake.QUARANTINE_RATE, "The share of lines of the last day that were quarantined is in its limit."),
        CheckKind(intake.VALUE_LENGTHS, "No value of the last day was cut or null because its column is too short."),
        CheckKind(intake.UNDEFINED_FIELDS, "Lines have no new field that no column reads."),
    ),
    Stage.MERGED: (
        CheckKind(days.OBJECT_SIZES, "Closed days have one merged object, or several that are big enough."),
        CheckKind(days.UNMERGED_AGE, "No object of a day that is over waits too long to be merged."),
    ),
    Stage.RECORDS: (
        CheckKind(
            joins.CHANGES_BALANCE,
            "Changes taken = folded + waiting, and the log holds as many of each day as folds have taken.",
            AssetCheckSeverity.ERROR,
            blocking=True,
        ),
        CheckKind(
            joins.EXPIRY_LATE,
            "No record is readable that was to be gone one fold and one catalog run before.",
            AssetCheckSeverity.ERROR,
        ),
        CheckKind(joins.TOO_LATE_RATE, "The share of lines of the last day that came too late is in its limit."),
        CheckKind(joins.JOIN_RATE, "The share of records that have all groups when they settle is in its limit."),
        CheckKind(joins.BUCKET_SKEW, "No bucket has far more changes or records than the others."),
        CheckKind(joins.PENDING_AGE, "No change waits to be readable for longer than the table file says."),
        CheckKind(joins.AMPLIFICATION, f"Folds write at most {MOST_FACTOR} rows for a change."),
        CheckKind(joins.RECORDS_WAIT, "Folds and merges can read all objects, and the settle clock goes."),
    ),
    Stage.CATALOG: (
        CheckKind(days.CLOSING_BLOCKED, "No day waits too long after its end to be closed and switched."),
        CheckKind(
            days.CATALOG_AGREES,
            "The catalog sends readers where PostgreSQL says that it does.",
            AssetCheckSeverity.ERROR,
        ),
        CheckKind(erasures.ERASURES_PROVED, "Every object was read after each erasure, and none holds a row of it."),
    ),
    Stage.ICEBERG: (
        CheckKind(
            iceberg.SNAPSHOT_ROWS,
            "The snapshot that readers get lists as many rows as PostgreSQL says that were committed to it.",
            AssetCheckSeverity.ERROR,
            blocking=True,
        ),
        CheckKind(
            iceberg.FOREIGN_COMMITS,
            "Nobody else has committed to the table, or has a table of its name.",
            AssetCheckSeverity.ERROR,
        ),
        CheckKind(iceberg.SECONDS_BEHIND, "No row waits longer to be listed than two commits are apart."),
        CheckKind(iceberg.DAYS_LEFT_OUT, "No day is left out because of its objects."),
        CheckKind(iceberg.HEALTH, f"The table can be planned quickly: its health is at least {HEALTHY} of 100."),
    ),
}


def kinds_of(stage: Stage) -> dict[str, CheckKind]:
    """The checks of a stage by name."""
    return {kind.name: kind for kind in _KINDS[stage]}


def check_specs(stage: Stage, tables: Iterable[TableDefinition]) -> Iterator[AssetCheckSpec]:
    """The checks of one stage for tables of one step."""
    for table in tables:
        key = asset_key(str(table.name), stage.value)
        for kind in _KINDS[stage]:
            yield AssetCheckSpec(kind.name, asset=key, description=kind.about, blocking=kind.blocking)
