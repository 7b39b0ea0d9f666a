"""Reports and refuses the cost of unlimited record lifetimes for `prism table apply`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.tables.amplification import MOST_FACTOR, Amplification
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.records import join_figures

_DAYS = 7.0


@dataclass(frozen=True, kw_only=True)
class AmplificationNotices:
    """Notices about tables with `window: forever`, and refusals."""

    notices: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def find_amplification(
    connection: Connection,
    planned: Iterable[tuple[TableDefinition, TableDefinition | None, bool]],
    now: datetime,
    *,
    is_accepted: bool,
) -> AmplificationNotices:
    """Examines planned tables, each with its current definition and whether it changes. Reads without locks.

    The cost of a new table is unknown, because it depends on the number of records and their changes. The check
    `amplification` watches it. For other tables the folds of the last days decide.
    """
    found = [(table, old, changes) for table, old, changes in planned if table.join and not table.join.window_seconds]
    known = [old.table_id for _, old, _ in found if old is not None]
    sums = join_figures.fold_sums(connection, known, now - timedelta(days=_DAYS), _DAYS) if known else {}
    notices = [_of_new(table) for table, old, _ in found if old is None]
    costly = [
        (table, changes, _sentence(table, sums[old.table_id].written))
        for table, old, changes in found
        if old is not None and old.table_id in sums and sums[old.table_id].written.is_too_much
    ]
    refused = [(table, sentence) for table, changes, sentence in costly if changes and not is_accepted]
    notices += [sentence for _, changes, sentence in costly if is_accepted or not changes]
    problems = [
        f"{table.places.get('window', f'{table.path}:1: window')}: {sentence}. A table of "
        "another name can have a window; publish.stale and publish.dirty let changes wait for longer. Apply with "
        "--accept-amplification to go on"
        for table, sentence in refused
    ]
    return AmplificationNotices(notices=tuple(notices), problems=tuple(problems))


def _of_new(table: TableDefinition) -> str:
    return (
        f"{table.name} keeps records for ever: a fold writes every changed bucket again, and the cost is unknown "
        "before changes come. The check amplification watches it, and `prism join advise` estimates it"
    )


def _sentence(table: TableDefinition, cost: Amplification) -> str:
    return (
        f"{table.name} keeps records for ever, and its folds of the last {cost.days:g} days wrote "
        f"{counted(cost.rows_written, 'row')} for {counted(cost.changes_folded, 'change')}, {cost.factor:.1f} for "
        f"each, above {MOST_FACTOR}"
    )
