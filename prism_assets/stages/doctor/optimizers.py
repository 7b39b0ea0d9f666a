"""Optimizers of Glue: nobody else may rewrite or delete files of snapshots."""

from __future__ import annotations

from prism_assets.domain.findings import Finding
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.context import StageContext
from prism_assets.stages.doctor.recorded import load_created_table


def look_at_optimizers(context: StageContext, table: TableDefinition) -> list[Finding]:
    """The enabled optimizers of a table in Glue. Asks Glue twice."""
    if (known := load_created_table(context, table)) is None:
        return []
    enabled = context.iceberg.enabled_optimizers(table)
    if not enabled:
        return []
    return [
        Finding(
            invariant="I4",
            kind="glue_optimizers",
            table=str(table.name),
            says=f"Glue optimizes its Iceberg table {known.identifier} by itself: {', '.join(enabled)}",
            remedy=(
                "Disable that in Glue, for the table or for the account: it rewrites or deletes what snapshots need, "
                "and prism expires snapshots and joins manifests itself"
            ),
        )
    ]
