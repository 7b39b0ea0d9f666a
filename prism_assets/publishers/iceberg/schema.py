"""The Iceberg schema of a table: the columns under the ids in their Parquet files, and the day, which no file contains.

The first metadata file is written here and then registered. PyIceberg's `create_table` would assign new ids, and
readers would match columns wrongly. `dt` exists only in the table, with one value per file. Inside the files it would
cost 850 bytes each, and readers of the `dt=…` folders would see the column twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, NestedField

from prism_assets.domain.columns.types import ColumnType, ListType, MapType, StructType
from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.tables.definition import TableDefinition

DAY_ID = 1_000_000
"""Above all column ids in table files, and below the ids reserved by Iceberg."""
DAY_FIELD = NestedField(field_id=DAY_ID, name=DAY_COLUMN, field_type=DateType(), required=False)
_FIELD_ID = 1_000

SPEC = PartitionSpec(
    PartitionField(source_id=DAY_ID, field_id=_FIELD_ID, transform=IdentityTransform(), name=DAY_COLUMN), spec_id=0
)
PROPERTIES: Mapping[str, str] = {
    "gc.enabled": "false",  # only prism deletes objects, because other readers use them, too
    "write.metadata.delete-after-commit.enabled": "false",
    "write.metadata.previous-versions-max": "100",
    "commit.retry.num-retries": "0",
    "prism.managed": "true",
}
MARK = "prism.publication"
"""The property on our tables and snapshots that names the installation."""


def iceberg_schema(table: TableDefinition, schema_id: int = 0) -> Schema:
    """Returns all columns, optional and with the ids of the files, and the day."""
    document: dict[str, Any] = {
        "type": "struct",
        "schema-id": schema_id,
        "fields": [
            {
                "id": column.column_id,
                "name": column.name,
                "type": iceberg_type(column.type),
                "required": False,
                **({"doc": column.description} if column.description else {}),
            }
            for column in table.columns
        ],
    }
    schema = Schema.model_validate(document)
    return Schema(*schema.fields, DAY_FIELD, schema_id=schema_id)


def iceberg_type(kind: ColumnType) -> str | dict[str, Any]:
    """Returns a type as in the JSON of Iceberg: parts are optional, and have the ids of the files."""
    match kind:
        case StructType(fields):
            parts = [
                {"id": part.field_id, "name": part.name, "type": iceberg_type(part.type), "required": False}
                for part in fields
            ]
            return {"type": "struct", "fields": parts}
        case ListType(element):
            part = {"element-id": element.field_id, "element": iceberg_type(element.type)}
            return {"type": "list", **part, "element-required": False}
        case MapType(key, value):
            keys = {"key-id": key.field_id, "key": iceberg_type(key.type)}
            values = {"value-id": value.field_id, "value": iceberg_type(value.type)}
            return {"type": "map", **keys, **values, "value-required": False}
    return kind.iceberg_type


def first_metadata(table: TableDefinition, location: str, mark: str, now: datetime) -> TableMetadataV2:
    """Returns the metadata of a table without a snapshot."""
    schema = iceberg_schema(table)
    return TableMetadataV2(
        location=location,
        table_uuid=uuid.uuid4(),
        last_updated_ms=milliseconds(now),
        last_column_id=schema.highest_field_id,
        schemas=[schema],
        current_schema_id=0,
        partition_specs=[SPEC],
        default_spec_id=SPEC.spec_id,
        last_partition_id=_FIELD_ID,
        sort_orders=[UNSORTED_SORT_ORDER],
        properties={**PROPERTIES, MARK: mark},
    )


def milliseconds(time: datetime) -> int:
    """Converts a time to Iceberg's unit."""
    return int(time.timestamp() * 1000)
