"""What is left when the stages have nothing more to do at once: for a person, or for a later run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.lifecycle import WaitForMerge, may_switch, next_steps
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.metadata import backlog, erasure_records, merge_jobs, partitions, publication_notes
from prism_assets.metadata.merge_jobs import JobStatus
from prism_assets.metadata.unread_objects import Unread, UnreadObjects, load_unread
from prism_assets.stages.catalog.column_transitions import read_transitions
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.context import StageContext
from prism_assets.stages.drop.report import read_drops
from prism_assets.stages.erase.report import find_erasures
from prism_assets.stages.iceberg.waits import find_iceberg_waits
from prism_assets.stages.record_faults import load_waits
from prism_assets.stages.silent_streams import find_silent


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One thing that is not done, in a sentence. It goes on when somebody acts, or by itself.

    `stuck` is what a run that goes on until all is idle would have done, had it got on at all. For what is `held_up` by
    something else that is left it does not wait.
    """

    sentence: str
    for_a_person: bool = False
    stuck: bool = False
    held_up: bool = False


FindLeftovers = Callable[[StageContext, Connection, Sequence[TableDefinition], datetime], Iterator[Leftover]]
"""Finds the leftovers of one kind; the functions below."""


def read_leftovers(
    context: StageContext, names: Collection[str] | None, kinds: Sequence[FindLeftovers], now: datetime
) -> tuple[Leftover, ...]:
    """The leftovers of some kinds in the tables named, or in all.

    Nothing is done with a table that lacks an erasure: the erasure is left there, and nothing else waits.
    """
    tables = context.choose_tables(names)
    with context.database.begin() as connection:
        held = erasure_records.load_held(connection)
        sound = [table for table in tables if table.table_id not in held]
        return tuple(
            item
            for find in kinds
            for item in find(context, connection, tables if find is erasures_left else sound, now)
        )


def objects_left(
    context: StageContext, connection: Connection, tables: Sequence[TableDefinition], now: datetime
) -> Iterator[Leftover]:
    """Staging objects that were given up, those that will be tried again, and those that wait for a flip."""
    named = {table.table_id: str(table.name) for table in tables}
    flipping = {table.table_id: table for table in tables if table.is_flipping}
    for unread in load_unread(connection, list(named)):
        yield from _unread_left(named[unread.table_id], unread)
    for counts in backlog.count_unfinished(connection):
        if counts.table_id not in named:
            continue
        held_up = counts.held_up if counts.table_id in flipping else 0
        if objects := counts.pending + counts.claimed - held_up:
            why = f", the latest after an error: {counts.latest_error}" if counts.latest_error else ""
            waiting = counted(objects, "staging object waits", "staging objects wait")
            sentence = f"{named[counts.table_id]}: {waiting} to be converted{why}"
            yield Leftover(sentence=sentence, stuck=True)
        if held_up:
            waiting = counted(held_up, "staging object waits", "staging objects wait")
            transitions = read_transitions(context, connection, flipping[counts.table_id], now)
            # Columns flip together; another run may have ended it since.
            why = next((item.outlook for item in transitions if item.is_flipping), "that has just ended")
            sentence = f"{named[counts.table_id]}: {waiting} to be converted, as columns flip to wider types: {why}"
            yield Leftover(sentence=sentence, stuck=True, held_up=True)


def _unread_left(table: str, unread: UnreadObjects) -> Iterator[Leftover]:
    latest = unread.examples[0]
    if unread.why is Unread.GIVEN_UP:
        sentence = (
            f"{table}: {counted(unread.objects, 'staging object is', 'staging objects are')} given up, "
            f"the latest {latest}; mend the cause, then "
            f"`prism stream --retry-failed --table {table}`, or accept it with `--give-up KEY`"
        )
        yield Leftover(sentence=sentence, for_a_person=True)
    if unread.why is Unread.OVERWRITTEN:
        sentence = (
            f"{table}: {counted(unread.objects, 'staging object is', 'staging objects are')} not read in their later "
            f"version, the latest {latest}; upload what is new under other keys, then `prism stream --give-up KEY`"
        )
        yield Leftover(sentence=sentence, for_a_person=True)
    if unread.why is Unread.RETRIED_LATER:
        sentence = (
            f"{table}: "
            + counted(
                unread.objects,
                "staging object could not be read and is tried again by itself",
                "staging objects could not be read and are tried again by themselves",
            )
            + f" from {unread.retry_time:%Y-%m-%d %H:%M}Z on, the latest {latest}"
        )
        yield Leftover(sentence=sentence)


def merges_left(
    _context: StageContext, connection: Connection, tables: Sequence[TableDefinition], now: datetime
) -> Iterator[Leftover]:
    """Merges that are parked, that failed and go again, or that should be done by now."""
    jobs = {job.partition_id: job for job in merge_jobs.load_status(connection) if _is_told(job, now)}
    named = {table.table_id: str(table.name) for table in tables}
    for item in partitions.load_partitions(connection, jobs).values():
        if item.table_id in named:
            yield _merge_left(named[item.table_id], item.date, jobs[item.partition_id], now)


def _is_told(job: JobStatus, now: datetime) -> bool:
    return bool(job.parked or job.running or job.last_error or job.schedule_time <= now)


def _merge_left(table: str, day: date, job: JobStatus, now: datetime) -> Leftover:
    if job.parked and job.retry_time:
        sentence = (
            f"{table} {day}: its merge is parked after {job.attempts} tries: {job.last_error}; it is tried again at "
            f"{job.retry_time:%Y-%m-%d %H:%M}Z, or at once by `prism merge --all --table {table} --date {day}`"
        )
        return Leftover(sentence=sentence)
    if job.parked:
        sentence = (
            f"{table} {day}: its merge is parked after {job.attempts} tries: {job.last_error}; "
            f"mend the cause, then `prism merge --all --table {table} --date {day}`"
        )
        return Leftover(sentence=sentence, for_a_person=True)
    before = f"; last time {job.last_error}" if job.last_error else ""
    if job.running:
        return Leftover(sentence=f"{table} {day}: its merge is running elsewhere{before}", stuck=True)
    if job.schedule_time <= now:
        return Leftover(sentence=f"{table} {day}: its merge is due{before}", stuck=True)
    return Leftover(sentence=f"{table} {day}: its merge goes again at {job.schedule_time:%Y-%m-%d %H:%M:%S}Z{before}")


def switches_left(
    _context: StageContext, connection: Connection, tables: Sequence[TableDefinition], now: datetime
) -> Iterator[Leftover]:
    """Closed partitions that nothing will ever switch: what they hold contradicts itself, or no merge is scheduled."""
    known = {table.table_id: table for table in tables}
    closed = list(filter(may_switch, partitions.load_pending(connection, list(known))))
    if not closed:
        return
    scheduled = {job.partition_id for job in merge_jobs.load_status(connection)}
    for item in closed:
        table = known[item.table_id]
        where = f"{table.name} {item.date}"
        for step in next_steps(item, StoredFacts(connection, table), now):
            if not isinstance(step, WaitForMerge):
                continue
            if step.is_contradiction:
                advice = "readers miss nothing: keep all objects, and report it"
                yield Leftover(sentence=f"{where} is not switched: {step.reason}; {advice}", for_a_person=True)
            elif item.partition_id not in scheduled:
                command = f"`prism merge --all --table {table.name} --date {item.date}`"
                sentence = f"{where} is not switched: {step.reason}, and no merge is scheduled; run {command}"
                yield Leftover(sentence=sentence, for_a_person=True)


def publications_left(
    context: StageContext, connection: Connection, tables: Sequence[TableDefinition], _now: datetime
) -> Iterator[Leftover]:
    """Publications that were not seen to end, whose calls may still change the catalog: the next runs compare it."""
    named = {table.table_id: str(table.name) for table in tables}
    settings = context.settings
    due = publication_notes.load_comparisons_due(
        connection, list(named), settings.catalog_compare_seconds, settings.lease_seconds
    )
    for (table_id, _), comparison in due.items():
        if comparison.notes:
            yield Leftover(sentence=f"{named[table_id]}: {comparison}", stuck=True)


def iceberg_left(
    _context: StageContext, connection: Connection, tables: Sequence[TableDefinition], _now: datetime
) -> Iterator[Leftover]:
    """What keeps Iceberg tables from showing rows."""
    for wait in find_iceberg_waits(connection, tables):
        yield Leftover(sentence=str(wait), for_a_person=wait.for_a_person)


def erasures_left(
    context: StageContext, connection: Connection, tables: Sequence[TableDefinition], _now: datetime
) -> Iterator[Leftover]:
    """Erasures that are not proved: others' tags and branches, and objects that nobody can read, may hold them.

    Erasures that PostgreSQL lacks after it was set back are left, too.
    """
    named = {table.table_id: str(table.name) for table in tables}
    for table_id, held in erasure_records.load_held(connection).items():
        if table_id in named:
            yield from (Leftover(sentence=f"{named[table_id]}: {item}", for_a_person=True) for item in held)
    for erasure in find_erasures(context, connection, tables, open_only=True):
        yield Leftover(sentence=f"{erasure.table}: {erasure.wait}", for_a_person=erasure.for_a_person)


def drops_left(
    context: StageContext, _connection: Connection, _tables: Sequence[TableDefinition], _now: datetime
) -> Iterator[Leftover]:
    """Tables that are being dropped: garbage collections go on with them."""
    for drop in read_drops(context):
        yield Leftover(sentence=str(drop))


def folds_left(
    context: StageContext, connection: Connection, tables: Sequence[TableDefinition], now: datetime
) -> Iterator[Leftover]:
    """What folds cannot read, and settle clocks that stand."""
    for table in tables:
        for reason in load_waits(connection, table, context.settings.full_scan_seconds, now):
            yield Leftover(sentence=f"{table.name}: {reason}", for_a_person=True)


def streams_left(
    _context: StageContext, connection: Connection, tables: Sequence[TableDefinition], now: datetime
) -> Iterator[Leftover]:
    """Streams from which nothing comes."""
    named = {table.table_id: str(table.name) for table in tables}
    for item in find_silent(connection, list(named), now):
        yield Leftover(sentence=f"{named[item.table_id]}: {item.sentence}", for_a_person=item.for_a_person)


ALL: Sequence[FindLeftovers] = (
    streams_left,
    objects_left,
    merges_left,
    switches_left,
    publications_left,
    iceberg_left,
    folds_left,
    erasures_left,
    drops_left,
)
