"""Tables that a catalog may show otherwise than recorded: after a run that died, or under another definition."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.catalog_state import undefined_tables
from prism_assets.metadata.publication_intents import load_comparisons_due
from prism_assets.stages.findings.subject import Look, Subject


def find_comparisons(look: Look) -> Iterator[Finding]:
    """Tables that the next catalog run compares. A run goes on with unseen ends; what is only old can wait."""
    settings = look.context.settings
    due = load_comparisons_due(
        look.connection, list(look.names), settings.catalog_compare_seconds, settings.lease_seconds
    )
    for (table_id, _), comparison in due.items():
        table = look.names[table_id]
        yield Finding(
            kind="compare",
            table=table,
            says=f"waits for the next catalog run, to be compared: {comparison}",
            remedy=f"`prism catalog --table {table}` compares it at once",
            acts=Acts.RUN,
            since=comparison.since,
            ends_runs=bool(comparison.intents),
        )


def find_undefined(look: Look) -> Iterator[Finding]:
    """Tables that a catalog shows under another definition, or under a name too many."""
    for table_id in undefined_tables(look.connection):
        if table_id in look.names:
            yield Finding(
                kind="define",
                table=look.names[table_id],
                says="waits for the next catalog run, to be shown as it is defined",
                acts=Acts.RUN,
                ends_runs=False,
            )


COMPARISONS = Subject(find=find_comparisons, runs="catalog")
DEFINITIONS = Subject(find=find_undefined, runs="catalog")
