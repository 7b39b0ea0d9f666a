"""Join tables with a due fold."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.records.folding import fold_reason
from prism_assets.metadata.tables import tables
from prism_assets.stages.findings.subject import Look, Subject
from prism_assets.stages.fold.plan import load_facts


def find_folds(look: Look) -> Iterator[Finding]:
    """For sensors alone. The check `pending_age` names late changes to people."""
    if look.for_people:
        return
    for table in look.tables:
        if table.join is None:
            continue
        records, changes = tables.load_join(look.connection, table.table_id)
        facts = load_facts(look.connection, records, changes)
        if reason := fold_reason(table.join.publish, facts, look.now):
            yield Finding(kind="fold", table=str(table.name), says=f"waits for a fold: {reason}", acts=Acts.RUN)


FOLDS = Subject(find=find_folds, runs="records")
