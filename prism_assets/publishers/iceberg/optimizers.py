"""AWS Glue's optimizers of Iceberg tables. They run by themselves, for one table or a whole account.

They do not know prism's needs: compaction replaces our data files, retention expires our snapshots, and orphan deletion
removes files not yet named by a snapshot.
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
    """Returns the types of optimizers enabled for a Glue table, by any setting. Makes two calls."""
    catalog = client.get_table(DatabaseName=database, Name=table)["Table"].get("CatalogId", "")
    answer = client.batch_get_table_optimizer(
        Entries=[{"catalogId": catalog, "databaseName": database, "tableName": table, "type": kind} for kind in _TYPES]
    )
    for failure in answer.get("Failures", ()):
        error = failure.get("error", {})
        if error.get("ErrorCode") != _NOT_CONFIGURED:
            message = f"{error.get('ErrorCode')}: {error.get('ErrorMessage')}"
            raise CatalogUnavailable(f"Glue does not list its optimizers of {database}.{table}: {message}")
    found = [item.get("tableOptimizer", {}) for item in answer.get("TableOptimizers", ())]
    return tuple(item["type"] for item in found if item.get("configuration", {}).get("enabled"))
