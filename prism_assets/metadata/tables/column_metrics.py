"""Column metrics in PostgreSQL: `{"<column id>": {"nulls": n, "lower": x, "upper": y}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from prism_assets.domain.files.data_file import ColumnMetrics, MetricValue


def to_jsonb(metrics: Sequence[ColumnMetrics]) -> str | None:
    """Returns one object's metrics as JSON text, or None without any. Leaves out unknown values."""
    columns = (f'"{column.column_id}": {{{", ".join(_known(column))}}}' for column in metrics)
    return f"{{{', '.join(columns)}}}" if metrics else None


def _known(column: ColumnMetrics) -> list[str]:
    values = {"nulls": column.nulls, "lower": column.lower, "upper": column.upper}
    return [f'"{name}": {_text(value)}' for name, value in values.items() if value is not None]


def _text(value: MetricValue) -> str:
    """Writes floats with a point and without an exponent, because jsonb would turn 1e300 into a whole number."""
    if not isinstance(value, float):
        return json.dumps(value)
    digits = format(Decimal(repr(value)), "f")
    return digits if "." in digits else f"{digits}.0"


def from_jsonb(document: Mapping[str, Any] | None) -> tuple[ColumnMetrics, ...]:
    """Reads the output of `to_jsonb`, sorted by column id. Older objects have no metrics."""
    found = ((int(number), known) for number, known in (document or {}).items())
    return tuple(
        ColumnMetrics(number, known.get("nulls"), _lower(known.get("lower")), known.get("upper"))
        for number, known in sorted(found, key=lambda item: item[0])
    )


def _lower(value: MetricValue | None) -> MetricValue | None:
    """Restores negative zero, the lower bound of floats, because PostgreSQL's numbers have none."""
    return -0.0 if isinstance(value, float) and value == 0 else value
