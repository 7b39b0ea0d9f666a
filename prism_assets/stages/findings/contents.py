"""Advice about contents of lines: values longer than their column, fields without room for a column."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from prism_assets.domain.days.lengths import length_warnings
from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.intake.quarantine import unfit_values
from prism_assets.stages.drift import find_full_contracts
from prism_assets.stages.findings.subject import Look, Subject

_DAY = timedelta(days=1)


def find_contents(look: Look) -> Iterator[Finding]:
    """Full contracts, and cut values of the last day. Their rows are readable, so no command fails."""
    yield from find_full_contracts(look.connection, look.tables)
    tables = {table.table_id: table for table in look.tables}
    for table_id, unfit in unfit_values(look.connection, list(tables), look.now - _DAY).items():
        for says in length_warnings(tables[table_id].columns, unfit):
            yield Finding(
                kind="values_cut",
                table=look.names[table_id],
                says=says,
                remedy=f"Then `prism rebuild {look.names[table_id]}` makes older rows again",
                acts=Acts.TIME,
                ends_runs=False,
            )


CONTENTS = Subject(find=find_contents)
