"""The text format of Prometheus, by its own library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from prism_assets.domain.metrics import (
    BY_NAME,
    LATENCY_BOUNDS,
    Distribution,
    Kind,
    Measured,
    Metric,
    Sample,
    group_by_name,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(measured: Iterable[Measured]) -> str:
    """Returns the values as text, in the order of the registry. Metrics without a value are left out."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Values(group_by_name(measured)))
    return generate_latest(registry).decode()


class _Values(Collector):
    """Gives the library the values, one family for each metric."""

    def __init__(self, values: Mapping[str, Sequence[Measured]]) -> None:
        self._values = values

    def collect(self) -> Iterator[Family]:
        """Yields the families."""
        for name, metric in BY_NAME.items():
            if name in self._values:
                yield _family(metric, self._values[name])


def _family(metric: Metric, values: Sequence[Measured]) -> Family:
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for item in values:
            assert isinstance(item, Distribution)
            bounds = [*(str(float(bound)) for bound in LATENCY_BOUNDS), "+Inf"]
            counts = list(zip(bounds, accumulate(item.counts), strict=True))
            histogram.add_metric(item.labels, buckets=counts, sum_value=item.total)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for item in values:
        assert isinstance(item, Sample)
        family.add_metric(item.labels, item.value)
    return family
