"""Merges of logs and of settled records: due, running, failed, parked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.text import counted
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files.merge_jobs import JobStatus
from prism_assets.metadata.files.merge_queue import due_merges
from prism_assets.stages.findings.subject import Look, Subject
from prism_assets.stages.merge.record_merge_plan import has_settled, plan_days


def find_merges(look: Look) -> Iterator[Finding]:
    """The merge job of each partition, a running one first. Sensors ask for due jobs alone."""
    if not look.for_people:
        yield from _due(look)
        return
    jobs: dict[int, JobStatus] = {}
    for job in look.jobs:
        jobs.setdefault(job.partition_id, job)
    if not jobs:
        return
    known = {item.partition_id: item for item in look.partitions}
    if look.loaded is None and (others := jobs.keys() - known.keys()):
        known |= partitions.load_partitions(look.connection, others)
    for partition_id, job in jobs.items():
        partition = known.get(partition_id)
        if partition is not None and partition.table_id in look.names:
            yield _merge(look, look.names[partition.table_id], partition.date, job)


def _due(look: Look) -> Iterator[Finding]:
    """Due jobs, and jobs of dead workers."""
    for item in due_merges(look.connection, look.now, look.context.settings.lease_seconds):
        if item.table_id in look.names:
            yield Finding(
                kind="merge_due",
                table=look.names[item.table_id],
                date=item.date,
                says="its merge is due",
                acts=Acts.RUN,
                count=item.due + item.abandoned,
            )


def _merge(look: Look, table: str, day: date, job: JobStatus) -> Finding:
    at_once = f"`prism merge --all --table {table} --date {day}`"
    kind, acts, remedy, ends_runs = "merge_due", Acts.RUN, f"{at_once} does it", True
    error = f"; last time {job.last_error}" if job.last_error else ""
    if job.running:
        says, remedy = f"its merge is running{error}", "It ends by itself, or its lease does"
    elif job.is_due(look.now):
        says = f"its merge is due{error}"
    elif job.parked:
        kind, says = "parked_merge", f"its merge is parked after {job.attempts} tries: {job.last_error}"
        acts, remedy = Acts.PERSON, f"Mend the cause, then {at_once}"
        if job.due_time:
            acts, remedy = Acts.TIME, f"It is tried again at {job.due_time:%Y-%m-%d %H:%M}Z, or at once by {at_once}"
    else:
        kind, acts, ends_runs = "merge_later", Acts.TIME, bool(job.last_error)
        says = f"its merge {'goes again' if error else 'is due'} at {job.schedule_time:%Y-%m-%d %H:%M:%S}Z{error}"
    return Finding(
        kind=kind,
        table=table,
        date=day,
        says=says,
        remedy=remedy,
        acts=acts,
        invariant="I10" if acts is Acts.PERSON else None,
        ends_runs=ends_runs,
    )


def find_record_merges(look: Look) -> Iterator[Finding]:
    """Merges of records, due or waiting for more records."""
    for table in filter(has_settled, look.tables):
        for item in plan_days(look.connection, table.table_id, look.context.lake, look.day):
            state = "is due" if item.plan.is_due else f"waits: {item.plan.reason}"
            yield Finding(
                kind="record_merge",
                table=look.names[table.table_id],
                date=item.date,
                says=f"its merge of {counted(item.objects, 'settled object')} {state}",
                remedy=f"`prism merge --table {table.name}` does what is due",
                acts=Acts.RUN if item.plan.is_due else Acts.TIME,
                ends_runs=False,
            )


MERGES = Subject(find=find_merges, runs="merged")
RECORD_MERGES = Subject(find=find_record_merges, runs="records")
