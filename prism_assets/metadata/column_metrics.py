"""Column metrics as PostgreSQL holds them: `{"<column id>": {"nulls": n, "lower": x, "upper": y}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from prism_assets.domain.files import ColumnMetrics, MetricValue


def to_jsonb(metrics: Sequence[ColumnMetrics]) -> str | None:
    """The text of the metrics of one object; None if there are none. What is not known is left out."""
    columns = (f'"{column.column_id}": {{{", ".join(_known(column))}}}' for column in metrics)
    return f"{{{', '.join(columns)}}}" if metrics else None


def _known(column: ColumnMetrics) -> list[str]:
    values = {"nulls": column.nulls, "lower": column.lower, "upper": column.upper}
    return [f'"{name}": {_text(value)}' for name, value in values.items() if value is not None]


def _text(value: MetricValue) -> str:
    """Floats have a point and no exponent: jsonb would write 1e300 as a whole number, and that would be read as one."""
    if not isinstance(value, float):
        return json.dumps(value)
    digits = format(Decimal(repr(value)), "f")
    return digits if "." in digits else f"{digits}.0"


def from_jsonb(document: Mapping[str, Any] | None) -> tuple[ColumnMetrics, ...]:
    """The metrics that `to_jsonb` wrote, by column id; none of objects from before anybody recorded them."""
    found = ((int(number), known) for number, known in (document or {}).items())
    return tuple(
        ColumnMetrics(number, known.get("nulls"), _lower(known.get("lower")), known.get("upper"))
        for number, known in sorted(found, key=lambda item: item[0])
    )


def _lower(value: MetricValue | None) -> MetricValue | None:
    """No number of PostgreSQL is the zero below zero, as which the lower bound of floats is known."""
    return -0.0 if isinstance(value, float) and value == 0 else value
