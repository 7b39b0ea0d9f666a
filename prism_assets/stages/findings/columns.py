"""Columns with objects of a former name or type."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.tables.column_transitions import load_days_to_rewrite
from prism_assets.stages.catalog.column_transitions import read_transitions
from prism_assets.stages.findings.subject import Look, Subject


def find_transitions(look: Look) -> Iterator[Finding]:
    """Open renames and widenings. Asks nothing where there is none."""
    for table in look.tables:
        for item in read_transitions(look.context, look.connection, table, look.now):
            yield Finding(
                kind="column_transition",
                table=str(table.name),
                says=str(item),
                acts=Acts.RUN if item.step.is_due else Acts.TIME,
                since=item.begun,
                ends_runs=False,
            )


def find_rewrites(look: Look) -> Iterator[Finding]:
    """Days of which a merge rewrites or copies objects. Asks nothing where no column is renamed or widened."""
    for item in load_days_to_rewrite(look.connection, look.tables):
        yield Finding(
            kind="rewrite",
            table=look.names[item.table_id],
            date=item.date,
            says="waits for the next merge, to rewrite objects from before a rename or widening",
            acts=Acts.RUN,
            ends_runs=False,
        )


COLUMNS = Subject(find=find_transitions, runs="catalog")
REWRITES = Subject(find=find_rewrites, runs="merged")
