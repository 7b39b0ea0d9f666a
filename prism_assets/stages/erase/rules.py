"""Makes rules of erasures in three steps: announce, record in the lake, put in force. A death may follow each step.

- After the announcement alone, nobody was told of the erasure: `prism erase --continue`, `prism run` and the daily
  garbage collection continue it.
- After the record the same holds, and the next comparison puts it in force.
- A restore to the time before the announcement leaves a record without a rule. Nobody can tell whether the erasure was
  in force, so a person repeats or withdraws it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from prism_assets.domain.erasures.records import HeldErasure
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.files.keys import table_folder
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata.erasures import erasure_records, erasures
from prism_assets.metadata.erasures.erasure_records import AnnouncedErasure
from prism_assets.objectstore.erasure_records import delete_record, put_record
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import compare_erasures, put_in_force

_SHORTEST = 8


def make_rules(context: StageContext, rules: Sequence[tuple[TableDefinition, ErasureRule]], digest: str) -> bool:
    """Makes the rules of one erasure. Returns False if the tables already have them."""
    with context.database.begin() as connection:
        if all(erasures.has_rule(connection, table.table_id, digest) for table, _ in rules):
            return False
        own = [(table.table_id, rule) for table, rule in rules]
        announced = erasure_records.announce(connection, table_folder(rules[0][0].name), digest, own)
        failpoint("erase.in_announce")
    failpoint("erase.after_announce")
    _record_and_force(context, announced)
    return True


def go_on_with_announced(context: StageContext, tables: Collection[TableDefinition]) -> bool:
    """Records and puts in force announced rules of tables after their call died. Returns whether there were any."""
    ids = {table.table_id for table in tables}
    with context.database.begin() as connection:
        found = erasure_records.load_announced(connection)
    mine = [item for item in found if ids.intersection(number for number, _ in item.rules)]
    for item in mine:
        _record_and_force(context, item)
    return bool(mine)


def _record_and_force(context: StageContext, announced: AnnouncedErasure) -> None:
    put_record(context.stores, context.lake, announced.record, announced.columns)
    failpoint("erase.after_record")
    put_in_force(context, announced)


def withdraw_erasure(context: StageContext, name: str, digest: str) -> HeldErasure:
    """Deletes the record of an erasure missing in PostgreSQL and not to be repeated. Returns the erasure.

    Raises WrongUse if the table misses no such erasure, or several. After a death the erasure is still noted as missing
    in PostgreSQL, and the same call again ends that.
    """
    context.check_lake()
    (table,) = context.choose_tables([name])
    missing = [item for item in compare_erasures(context).get(table.table_id, ()) if item.is_missing]
    chosen = [item for item in missing if item.record.digest.startswith(digest.lower())]
    if len(digest) < _SHORTEST or len({item.record.digest for item in chosen}) != 1:
        known = ", ".join(item.record.digest for item in missing) or "none"
        raise WrongUse(
            f"--withdraw {digest} is not the beginning, of {_SHORTEST} digits at least, of the HMAC of one erasure "
            f"that {name} lacks (there are: {known}); nothing was withdrawn"
        )
    for item in chosen:
        delete_record(context.stores, context.lake, item.record)
        failpoint("erase.after_delete_record")
        with context.database.begin() as connection:
            erasure_records.withdraw(connection, item.record)
    return chosen[0]
