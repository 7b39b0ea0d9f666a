"""What is left when the stages have nothing more to do at once: for a person, or for a later run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.partitions import PartitionState, contradiction, switch_refusal
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import leftovers, merge_jobs, partitions
from prism_assets.metadata.leftovers import UnconvertedObjects
from prism_assets.metadata.merge_jobs import JobStatus
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One thing that is not done, in a sentence. It goes on when somebody acts, or by itself.

    `stuck` is what a run that goes on until all is idle would have done, had it got on at all.
    """

    sentence: str
    for_a_person: bool = False
    stuck: bool = False


Kind = Callable[[Connection, Sequence[TableDefinition], datetime], Iterator[Leftover]]
"""Finds the leftovers of one kind; the functions below."""


def read_leftovers(
    context: StageContext, names: Collection[str] | None, kinds: Sequence[Kind], now: datetime
) -> tuple[Leftover, ...]:
    """What lies about in the tables named, or in all, of some kinds."""
    tables = context.choose_tables(names)
    with context.database.begin() as connection:
        return tuple(item for find in kinds for item in find(connection, tables, now))


def objects_left(connection: Connection, tables: Sequence[TableDefinition], _now: datetime) -> Iterator[Leftover]:
    """Staging objects that were given up, and those that will be tried again."""
    named = {table.table_id: str(table.name) for table in tables}
    for found in leftovers.unconverted_objects(connection, list(named)):
        yield from _objects_of(named[found.table_id], found)


def _objects_of(table: str, found: UnconvertedObjects) -> Iterator[Leftover]:
    if found.given_up:
        sentence = (
            f"{table}: {found.given_up} staging objects are given up, the latest {found.given_up_example}; "
            f"mend the cause, then `prism stream --retry-failed --table {table}`, or accept it with `--give-up KEY`"
        )
        yield Leftover(sentence=sentence, for_a_person=True)
    if found.overwritten:
        sentence = (
            f"{table}: {found.overwritten} staging objects were written again after their conversion, the latest "
            f"{found.overwritten_example}; upload what is new under other keys, then `prism stream --give-up KEY`"
        )
        yield Leftover(sentence=sentence, for_a_person=True)
    if found.parked:
        sentence = (
            f"{table}: {found.parked} staging objects could not be read and are tried again by themselves from "
            f"{found.parked_until:%Y-%m-%d %H:%M}Z on, the latest {found.parked_example}"
        )
        yield Leftover(sentence=sentence)
    if found.waiting:
        why = f", the latest after an error: {found.waiting_example}" if found.waiting_example else ""
        yield Leftover(sentence=f"{table}: {found.waiting} staging objects wait to be converted{why}", stuck=True)


def merges_left(connection: Connection, tables: Sequence[TableDefinition], now: datetime) -> Iterator[Leftover]:
    """Merges that are parked, that failed and go again, or that should be done by now."""
    jobs = {job.partition_id: job for job in merge_jobs.load_status(connection) if _is_told(job, now)}
    named = {table.table_id: str(table.name) for table in tables}
    for item in partitions.load_partitions(connection, jobs).values():
        if item.table_id in named:
            yield _merge_left(named[item.table_id], item.date, jobs[item.partition_id], now)


def _is_told(job: JobStatus, now: datetime) -> bool:
    return bool(job.parked or job.running or job.last_error or job.schedule_time <= now)


def _merge_left(table: str, day: date, job: JobStatus, now: datetime) -> Leftover:
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


def switches_left(connection: Connection, tables: Sequence[TableDefinition], _now: datetime) -> Iterator[Leftover]:
    """Closed partitions that nothing will ever switch: what they hold contradicts itself, or no merge is scheduled."""
    named: Mapping[int, str] = {table.table_id: str(table.name) for table in tables}
    restless = partitions.load_restless(connection, list(named))
    closed = [item for item in restless if item.state is PartitionState.CLOSED]
    if not closed:
        return
    scheduled = {job.partition_id for job in merge_jobs.load_status(connection)}
    for item in closed:
        evidence = partitions.switch_evidence(connection, item.partition_id)
        where = f"{named[item.table_id]} {item.date}"
        if wrong := contradiction(evidence):
            sentence = f"{where} is not switched: {wrong}; readers miss nothing: keep all objects, and report it"
            yield Leftover(sentence=sentence, for_a_person=True)
        elif (refusal := switch_refusal(item, evidence)) and item.partition_id not in scheduled:
            command = f"`prism merge --all --table {named[item.table_id]} --date {item.date}`"
            sentence = f"{where} is not switched: {refusal}, and no merge is scheduled; run {command}"
            yield Leftover(sentence=sentence, for_a_person=True)


ALL: Sequence[Kind] = (objects_left, merges_left, switches_left)
