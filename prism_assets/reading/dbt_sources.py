"""Sources for dbt: a properties file that names the tables, their columns and their freshness."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import yaml

from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.reading.sql_engines import SqlEngine, database_of
from prism_assets.settings import IcebergSettings, ReaderSettings

_CATALOG_OF_ATHENA = "awsdatacatalog"
_TEMPLATE = re.compile(r"\{(?=[{%#])")
_RECENT = {
    SqlEngine.REDSHIFT: f"{DAY_COLUMN} >= current_date - {{days}}",
    SqlEngine.ATHENA: f"{DAY_COLUMN} >= current_date - interval '{{days}}' day",
    SqlEngine.ICEBERG: f"{DAY_COLUMN} >= current_date - interval '{{days}}' day",
}
"""Filters of the newest days, so that dbt reads no other partition for the freshness."""


def dbt_sources(
    engine: SqlEngine,
    tables: Mapping[str, Sequence[TableDefinition]],
    settings: ReaderSettings,
    iceberg: IcebergSettings,
) -> dict[str, Any]:
    """Returns the properties, as dbt 1.10 and newer reads them. Each schema is a source."""
    sources = []
    for schema, shown in tables.items():
        database = {"database": _CATALOG_OF_ATHENA} if engine is SqlEngine.ATHENA else {}
        # In Redshift the external schema of `prism table ddl` has the name of the schema.
        name = schema if engine is SqlEngine.REDSHIFT else database_of(engine, schema, settings, iceberg)
        sources.append(
            {
                "name": schema,
                "loader": "prism",
                **database,
                "schema": name,
                "tables": [_table(engine, table) for table in shown],
            }
        )
    return {"version": 2, "sources": sources}


def as_yaml(properties: Mapping[str, Any]) -> str:
    """Returns the properties as YAML."""
    text: str = yaml.safe_dump(properties, sort_keys=False, allow_unicode=True, width=120)
    return text


def _table(engine: SqlEngine, table: TableDefinition) -> dict[str, Any]:
    named = {"description": _plain(table.description)} if table.description else {}
    owner = {"meta": {"owner": table.owner}} if table.owner else {}
    config = {**_freshness(engine, table), **owner}
    return {
        "name": table.name.table,
        **named,
        **({"config": config} if config else {}),
        "columns": [
            *(
                {
                    "name": column.glue_name,
                    "data_type": column.glue_type,
                    **({"description": _plain(column.description)} if column.description else {}),
                    **({"config": {"meta": {"sensitive": True}}} if column.hides else {}),
                }
                for column in table.columns
            ),
            {"name": DAY_COLUMN, "data_type": "date", "description": "Event date, the partition."},
        ],
    }


def _freshness(engine: SqlEngine, table: TableDefinition) -> dict[str, Any]:
    """Returns the freshness of the table file: the age of the newest event time, in UTC."""
    if table.freshness is None:
        return {}
    warn, fail = table.freshness.warn, table.freshness.fail
    days = fail.days + 2  # of the failure itself, and for time zones of tables
    column = table.partition_column  # dbt writes it as it is; Redshift refuses a bare `timestamp`, Athena a bare `end`
    return {
        "loaded_at_field": column if engine is SqlEngine.ICEBERG else f'"{column}"',  # Spark quotes otherwise
        "freshness": {
            **({"warn_after": _duration(warn)} if warn else {}),
            "error_after": _duration(fail),
            "filter": _RECENT[engine].format(days=days),
        },
    }


def _duration(time: timedelta) -> dict[str, Any]:
    """Returns dbt's count and period. Parts of a minute are rounded up."""
    minutes = -(-int(time.total_seconds()) // 60)
    for period, length in (("day", 1_440), ("hour", 60)):
        if minutes % length == 0:
            return {"count": minutes // length, "period": period}
    return {"count": minutes, "period": "minute"}


def _plain(text: str) -> str:
    """Returns a text that dbt does not take for a template."""
    return _TEMPLATE.sub("{ ", text)
