"""The assets of a table: one for each stage of its rows."""

from __future__ import annotations

from typing import Literal

from prism_assets.domain.tables.definition import TableDefinition

Asset = Literal["live", "merged", "records", "catalog", "iceberg"]


def assets_of(table: TableDefinition) -> frozenset[Asset]:
    """Returns the assets of a table. Records are folded and published; logs are streamed, merged and published."""
    rows: tuple[Asset, ...] = ("live", "merged") if table.join is None else ("records",)
    return frozenset((*rows, "catalog", "iceberg") if table.iceberg is not None else (*rows, "catalog"))
