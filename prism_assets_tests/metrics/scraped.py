"""Reads the text format of Prometheus as a scraper does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def values_of(text: str) -> dict[str, float]:
    """Returns the values by series, such as `prism_table_rows_total{table="log.events"}`."""
    return {
        _series(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _series(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name
