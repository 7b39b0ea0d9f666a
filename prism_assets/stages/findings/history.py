"""Old objects of tables: waiting for `prism history`, or unregistered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.streams.intake import LeftOut
from prism_assets.domain.text import counted
from prism_assets.metadata import leases
from prism_assets.metadata.intake import history
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.findings.subject import Look, Subject


def find_history(look: Look) -> Iterator[Finding]:
    """Tables with an incomplete history. A running command goes on by itself; without one a person must run it."""
    found = [*_find_waiting(look), *_find_late(look), *_find_part_ends(look)]
    holders = leases.holders(look.connection, LeaseKind.HISTORY, sorted({table for table, _ in found})) if found else {}
    for table_id, finding in found:
        holder = holders.get(table_id)
        if holder is not None and holder.silent_seconds < look.context.settings.lease_seconds:
            yield replace(finding, remedy=f"{holder} is at work", acts=Acts.TIME)
        else:
            yield finding


def _find_waiting(look: Look) -> Iterator[tuple[int, Finding]]:
    """Objects that no batch of their history has begun."""
    for rest in history.load_rest(look.connection, list(look.names)):
        if rest.waiting:
            table = look.names[rest.table_id]
            yield (
                rest.table_id,
                Finding(
                    kind="history_waits",
                    table=table,
                    says=f"{counted(rest.waiting, 'old object waits', 'old objects wait')} for `prism history`, of the "
                    f"days {rest.first} to {rest.last}",
                    remedy=f"Run `prism history {table}`: it goes on where it was",
                    count=rest.waiting,
                    ends_runs=False,
                ),
            )


def _find_late(look: Look) -> Iterator[tuple[int, Finding]]:
    """Late objects, and objects with a registration lost by a restore of PostgreSQL. One finding a stream.

    Listings count these objects. Days without a history are left out on purpose.
    """
    for item in look.listed:
        late = item.left_out.get(LeftOut.AFTER_HISTORY, 0)
        if late and item.history_from is not None:
            table = look.names[item.table_id]
            yield (
                item.table_id,
                Finding(
                    kind="history_late",
                    table=table,
                    says=f"stream {item.stream}: {counted(late, 'object')} of days from {item.history_from} on came "
                    "after their history, and no row of them is readable",
                    remedy=f"Run `prism history {table} --from {item.history_from}`: it registers what is new",
                    count=late,
                    invariant="I10",
                ),
            )


def _find_part_ends(look: Look) -> Iterator[tuple[int, Finding]]:
    """Days that stay open, because the history goes on with the next one."""
    parts = sorted({item.table_id for item in look.listed if item.history_from is not None})
    for table_id, day in history.find_part_ends(look.connection, parts) if parts else ():
        table = look.names[table_id]
        yield (
            table_id,
            Finding(
                kind="history_part_ends",
                table=table,
                date=day,
                says="the day stays open: objects of the next day may have rows of it, and are not brought in yet",
                remedy=f"Run `prism history {table} --from {day + timedelta(days=1)}`, or with `--cancel` to close it",
                ends_runs=False,
            ),
        )


HISTORY = Subject(find=find_history)
