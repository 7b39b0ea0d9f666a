"""Unread staging objects, and staging objects that wait for a batch."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.text import counted
from prism_assets.metadata.intake.backlog import StagingCounts, count_pending, count_stopped
from prism_assets.metadata.intake.unread_objects import Unread, UnreadObjects, load_unread
from prism_assets.stages.catalog.column_transitions import read_transitions
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject

UNREAD_OBJECTS = "unread_objects"
BEHIND_FLIP = "objects_behind_flip"
"""Objects behind the flip of a column. A run does not wait for these: the flip may wait for a person."""


def find_unread(look: Look) -> Iterator[Finding]:
    """Objects given up, refused, overwritten, or read before; objects of stopped streams."""
    for unread in load_unread(look.connection, list(look.names)):
        yield _unread(look.names[unread.table_id], unread)
    for stopped in count_stopped(look.connection, list(look.names)):
        yield Finding(
            kind="stopped_stream",
            table=look.names[stopped.table_id],
            says=f"{counted(stopped.objects, 'object waits', 'objects wait')} at {stopped.url}, as stream "
            f"{stopped.stream} is stopped",
            remedy="`enabled: true` in the table file has them converted, `discard: true` beside it counts them done",
            acts=Acts.TIME,
            count=stopped.objects,
            ends_runs=False,
        )


def _unread(table: str, unread: UnreadObjects) -> Finding:
    objects, told = unread.objects, f", the latest {'; '.join(unread.examples)}"
    match unread.why:
        case Unread.GIVEN_UP:
            says = counted(objects, "staging object is given up", "staging objects are given up")
            remedy = (
                f"Mend the cause, then `prism stream --retry-failed --table {table}`, or accept it with "
                "`prism stream --give-up KEY`"
            )
        case Unread.OVERWRITTEN:
            says = counted(
                objects,
                "staging object is not read in its later version",
                "staging objects are not read in their later version",
            )
            remedy = "Upload the new version under other keys, then `prism stream --give-up KEY`"
        case Unread.READ_BEFORE:
            says = counted(
                objects, "staging object comes again and is not read", "staging objects come again and are not read"
            )
            remedy = (
                "The table has the rows that were read before. Delete the objects, then `prism stream --give-up KEY`; "
                "upload new content under other keys"
            )
        case Unread.RETRIED_LATER:
            says = (
                counted(
                    objects,
                    "staging object could not be read and is tried again by itself",
                    "staging objects could not be read and are tried again by themselves",
                )
                + f" from {unread.retry_time:%Y-%m-%d %H:%M}Z on"
            )
            remedy = "`prism stream --retry KEY` tries it at once"
        case Unread.LONG_OUTAGE:
            says = (
                counted(objects, "staging object is", "staging objects are") + " refused by the store again and again"
            )
            remedy = "They are tried again by themselves; the store says why it refuses them"
    return Finding(
        kind=UNREAD_OBJECTS,
        table=table,
        says=says + told,
        remedy=remedy,
        acts=Acts.PERSON if unread.why.needs_a_person else Acts.TIME,
        count=objects,
        invariant="I10",
        ends_runs=unread.why is not Unread.LONG_OUTAGE,  # these are among the waiting ones
    )


def find_waiting(look: Look) -> Iterator[Finding]:
    """Objects before a batch or a flip. Sensors count at most a thousand a stream."""
    if not look.for_people:
        yield from _claimable(look)
        return
    flipping = {table.table_id: table for table in look.tables if table.is_flipping}
    for table_id, counts in look.unfinished.items():
        if table_id not in look.names:
            continue
        held_up = counts.held_up if table_id in flipping else 0
        if objects := counts.pending + counts.claimed - held_up:
            yield _waiting(look.names[table_id], counts, objects)
        if held_up:
            transitions = read_transitions(look.context, look.connection, flipping[table_id], look.now)
            # Columns flip together; another run may have ended it since.
            why = next((item.outlook for item in transitions if item.is_flipping), "that has just ended")
            yield Finding(
                kind=BEHIND_FLIP,
                table=look.names[table_id],
                says=f"{_to_be_converted(held_up)}, as columns flip to wider types: {why}",
                remedy="`prism table flip` says what is left",
                acts=Acts.RUN,
                count=held_up,
            )


def _claimable(look: Look) -> Iterator[Finding]:
    """Objects for the next batch, and objects in the hands of dead workers."""
    for item in count_pending(look.connection, look.context.settings.lease_seconds):
        for kind, count in (("objects_wait", item.pending), ("objects_abandoned", item.abandoned)):
            if count and item.table_id in look.names:
                yield Finding(
                    kind=kind, table=look.names[item.table_id], says=_to_be_converted(count), acts=Acts.RUN, count=count
                )


def _waiting(table: str, counts: StagingCounts, objects: int) -> Finding:
    why = f", the latest after an error: {counts.latest_error}" if counts.latest_error else ""
    return Finding(
        kind="objects_wait",
        table=table,
        says=f"{_to_be_converted(objects)}{why}",
        remedy=f"`prism stream --table {table}` converts them",
        acts=Acts.RUN,
        count=objects,
    )


def _to_be_converted(objects: int) -> str:
    return f"{counted(objects, 'staging object waits', 'staging objects wait')} to be converted"


UNREAD = Subject(
    find=find_unread,
    check=FindingCheck(
        name=UNREAD_OBJECTS,
        asset="live",
        about="No staging object was given up, written again after its conversion, or uploaded again after its "
        "metadata left for the archive.",
        passes="every object was read, or waits for its turn",
        fails=lambda item: item.kind == UNREAD_OBJECTS,
    ),
)
WAITING = Subject(find=find_waiting, runs="live")
