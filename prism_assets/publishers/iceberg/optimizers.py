"""Glue's own optimizers of Iceberg tables: they act by themselves, for one table or for all of an account.

They know nothing of what prism needs: compaction replaces its data files by others, retention expires its snapshots,
and the deletion of orphans takes files that no snapshot names yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prism_assets.domain.errors import CatalogUnavailable

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.literals import TableOptimizerTypeType

_TYPES: tuple[TableOptimizerTypeType, ...] = ("compaction", "retention", "orphan_file_deletion")
_NOT_CONFIGURED = "EntityNotFoundException"


def enabled_optimizers(client: GlueClient, database: str, table: str) -> tuple[str, ...]:
    """The types of the optimizers that are enabled for a table of Glue, whoever has enabled them. Two calls."""
    catalog = client.get_table(DatabaseName=database, Name=table)["Table"].get("CatalogId", "")
    answer = client.batch_get_table_optimizer(
        Entries=[{"catalogId": catalog, "databaseName": database, "tableName": table, "type": kind} for kind in _TYPES]
    )
    for failure in answer.get("Failures", ()):
        error = failure.get("error", {})
        if error.get("ErrorCode") != _NOT_CONFIGURED:
            said = f"{error.get('ErrorCode')}: {error.get('ErrorMessage')}"
            raise CatalogUnavailable(f"Glue does not tell of its optimizers of {database}.{table}: {said}")
    found = [item.get("tableOptimizer", {}) for item in answer.get("TableOptimizers", ())]
    return tuple(item["type"] for item in found if item.get("configuration", {}).get("enabled"))
