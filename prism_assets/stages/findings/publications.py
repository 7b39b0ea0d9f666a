"""Tables with a catalog that may differ from the record: after a dead run, or a new definition."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.days.catalog_state import undefined_tables
from prism_assets.metadata.days.publication_intents import load_comparisons_due
from prism_assets.stages.findings.subject import Look, Subject


def find_comparisons(look: Look) -> Iterator[Finding]:
    """Tables to compare in the next catalog run. `prism run` waits for dead publications, not for old comparisons."""
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
    """Tables with an older definition, or a former name, in a catalog."""
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
