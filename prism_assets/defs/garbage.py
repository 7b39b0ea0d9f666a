"""prism_gc, a daily job. It maintains Iceberg tables, continues erasures and drops, and deletes unreferenced objects.

Maintaining an Iceberg table means expiring snapshots, joining manifests and keeping tags. Publications do this as well,
but tables without new rows have no publications.
"""

# Dagster reads the annotations of ops, so this module does not postpone them.
from datetime import datetime, timezone

from dagster import (
    DefaultScheduleStatus,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    ScheduleDefinition,
    TableColumn,
    TableMetadataValue,
    TableRecord,
    TableSchema,
    job,
    op,
)

from prism_assets.defs import failures
from prism_assets.defs.keys import GARBAGE_COLLECTION
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource
from prism_assets.stages.context import StageContext
from prism_assets.stages.drop.report import DropReport
from prism_assets.stages.drop.run import continue_drops
from prism_assets.stages.erase.run import continue_erasures
from prism_assets.stages.gc.report import GcReport, TableGcReport
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.iceberg.pending import published_tables
from prism_assets.stages.iceberg.report import IcebergReport
from prism_assets.stages.leases import takeover_seconds

_EVERY_NIGHT = "47 3 * * *"
_COLUMNS = TableSchema(
    [
        TableColumn("table", "string"),
        TableColumn("objects", "int"),
        TableColumn("bytes", "int"),
        TableColumn("reasons", "string"),
        TableColumn("held_back", "int"),
        TableColumn("foreign", "int"),
    ]
)


def build_garbage_collection(location: Location) -> tuple[JobDefinition, ScheduleDefinition]:
    """Returns the job and its daily schedule. The schedule is on by default and runs after the maintenance."""

    @op(description="Continues erasures and drops, and deletes unreferenced objects.")
    def collect_garbage(context: OpExecutionContext, prism_platform: PlatformResource) -> None:
        with failures.mapped(), prism_platform.open(location, context.log.info, context.log.warning) as stages:
            erased = continue_erasures(stages)
            report = run_gc(stages)
            dropped = continue_drops(stages)
        context.add_output_metadata(_metadata(report, dropped))
        problems = (*erased.problems, *report.problems, *dropped.problems)
        if problems:
            transient = all(problem.transient for problem in problems)
            errors = (*erased.errors, *report.errors, *dropped.errors)
            failures.raise_for("\n".join(errors), transient=transient)

    @op(description="Expires snapshots of Iceberg tables, joins manifests of closed days, and keeps tags.")
    def optimize_iceberg(context: OpExecutionContext, prism_platform: PlatformResource) -> None:
        with failures.mapped(), prism_platform.open(location, context.log.info, context.log.warning) as stages:
            report = _optimized(stages)
        context.add_output_metadata(_metadata_of_iceberg(report))
        problems = [problem for table in report.tables for problem in table.problems if problem.date is None]
        if problems:
            transient = all(problem.transient for problem in problems)
            failures.raise_for("\n".join(map(str, problems)), transient=transient)

    @job(name=GARBAGE_COLLECTION, description="Deletes unreferenced objects below the prefixes of tables.")
    def garbage_collection() -> None:
        optimize_iceberg()
        collect_garbage()  # independent of the other op's result

    schedule = ScheduleDefinition(
        name=f"{GARBAGE_COLLECTION}_daily",
        job=garbage_collection,
        cron_schedule=_EVERY_NIGHT,
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    return garbage_collection, schedule


def _optimized(stages: StageContext) -> IcebergReport:
    """Commits whatever a plan finds due."""
    if not published_tables(stages, None):
        return IcebergReport(tables=(), seconds=0)
    # PyIceberg takes as long to import as everything else, and loading definitions does not need it.
    from prism_assets.stages.iceberg.run import run_iceberg

    now = datetime.now(timezone.utc)
    return run_iceberg(stages, now=now, ignore_pace=True, optimize=True, wait_seconds=takeover_seconds(stages))


def _metadata_of_iceberg(report: IcebergReport) -> dict[str, MetadataValue]:
    commits = [table.commit for table in report.tables if table.commit]
    return {
        "tables": MetadataValue.int(len(report.tables)),
        "commits": MetadataValue.int(len(commits)),
        "expired snapshots": MetadataValue.int(sum(commit.expired for commit in commits)),
        "bytes held by tags": MetadataValue.int(sum(table.tag_bytes or 0 for table in report.tables)),
    }


def _metadata(report: GcReport, dropped: DropReport) -> dict[str, MetadataValue]:
    collected = [table for table in report.tables if table.sentences(dry_run=False)]
    return {
        "objects": MetadataValue.int(report.deleted.objects),
        "bytes": MetadataValue.int(report.deleted.content_length),
        "objects held back": MetadataValue.int(report.held_back.objects),
        "objects not of prism": MetadataValue.int(report.foreign.objects),
        "objects of dropped tables": MetadataValue.int(dropped.deleted.objects),
        "drops": MetadataValue.text("\n".join(dropped.sentences) or "none"),
        "tables": TableMetadataValue(records=list(map(_record, collected)), schema=_COLUMNS),
    }


def _record(table: TableGcReport) -> TableRecord:
    return TableRecord(
        {
            "table": table.table,
            "objects": table.sum.objects,
            "bytes": table.sum.content_length,
            "reasons": ", ".join(f"{item.objects} {reason}" for reason, item in table.deleted.items()),
            "held_back": table.held_back.objects,
            "foreign": table.foreign.objects,
        }
    )
