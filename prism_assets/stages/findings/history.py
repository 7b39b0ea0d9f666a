"""Old objects of tables that wait for `prism history`."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.text import counted
from prism_assets.metadata import leases
from prism_assets.metadata.intake import history
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.findings.subject import Look, Subject


def find_history(look: Look) -> Iterator[Finding]:
    """Tables with objects that no batch of their history has begun. Without a run at work a person has to go on."""
    waiting = [item for item in history.load_rest(look.connection, list(look.names)) if item.waiting]
    if not waiting:
        return
    holders = leases.holders(look.connection, LeaseKind.HISTORY, [item.table_id for item in waiting])
    for rest in waiting:
        table, holder = look.names[rest.table_id], holders.get(rest.table_id)
        is_at_work = holder is not None and holder.silent_seconds < look.context.settings.lease_seconds
        yield Finding(
            kind="history_waits",
            table=table,
            says=f"{counted(rest.waiting, 'old object waits', 'old objects wait')} for `prism history`, of the days "
            f"{rest.first} to {rest.last}",
            remedy=f"{holder} is at work" if is_at_work else f"Run `prism history {table}`: it goes on where it was",
            acts=Acts.TIME if is_at_work else Acts.PERSON,
            count=rest.waiting,
            ends_runs=False,
        )


HISTORY = Subject(find=find_history)
