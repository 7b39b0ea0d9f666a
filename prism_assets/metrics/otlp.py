"""Metrics by OTLP, for collectors that scrape nothing. OpenTelemetry's own variables say where and how often.

The SDK reads `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_METRIC_EXPORT_INTERVAL`,
`OTEL_SERVICE_NAME` and their like. It is optional: `prism-assets[otel]`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.metrics import METRICS, Kind, Measured, Metric, Sample, Source, group_by_name

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_SHARED_SECONDS = 1.0


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment names an OTLP endpoint, and does not turn metrics off."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_METRICS_EXPORTER") == "none":
        return False
    return any(environment.get(name) for name in _ENDPOINTS)


@contextmanager
def pushed(source: Source, samples: Callable[[], Iterable[Measured]]) -> Iterator[None]:
    """Pushes the metrics of a process while the block runs, if the environment wants it.

    A collector that does not answer is a line in the log of OpenTelemetry, and nothing else.
    """
    if not is_wanted():
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError:
        raise WrongUse(
            f"{next(name for name in _ENDPOINTS if os.environ.get(name))} is set, and OpenTelemetry is not installed: "
            "run pip install 'prism-assets[otel]', or unset it and scrape /metrics"
        ) from None
    _refuse_other_protocols(os.environ)
    os.environ.setdefault("OTEL_SERVICE_NAME", source.value.replace(" ", "-"))
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    _register(provider.get_meter("prism_assets"), source, _SharedReading(samples))
    try:
        yield
    finally:
        provider.shutdown(timeout_millis=5_000)


def _refuse_other_protocols(environment: Mapping[str, str]) -> None:
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise WrongUse(
            f"OTLP by {protocol} is not offered: set {_PROTOCOLS[1]}=http/protobuf, and its port, often 4318"
        )


def _register(meter: Any, source: Source, values: _SharedReading) -> None:
    """Registers an instrument for each counter and gauge of the source. Of a histogram, sum and count are counters."""
    for metric in METRICS:
        if metric.source is not source:
            continue
        if metric.kind is Kind.HISTOGRAM:
            for part in ("sum", "count"):
                name = f"{metric.name}_{part}"
                meter.create_observable_counter(name, [_reader(metric, name, values)], description=metric.help)
        elif metric.kind is Kind.COUNTER:
            name = metric.name.removesuffix("_total")
            meter.create_observable_counter(name, [_reader(metric, metric.name, values)], description=metric.help)
        else:
            callback = _reader(metric, metric.name, values)
            meter.create_observable_gauge(metric.name, [callback], description=metric.help)


def _reader(metric: Metric, name: str, values: _SharedReading) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Returns the callback of one instrument."""
    from opentelemetry.metrics import Observation

    def read(_options: CallbackOptions) -> Iterator[Observation]:
        for item in values.of(metric.name):
            yield Observation(_value(item, name), dict(zip(metric.labels, item.labels, strict=True)))

    return read


def _value(item: Measured, name: str) -> float:
    if isinstance(item, Sample):
        return item.value
    return item.total if name.endswith("_sum") else sum(item.counts)


class _SharedReading:
    """The metrics of one export. Each instrument asks for its own, and all share one call of `samples`."""

    def __init__(self, samples: Callable[[], Iterable[Measured]]) -> None:
        self._samples = samples
        self._values: Mapping[str, Sequence[Measured]] = {}
        self._until = float("-inf")

    def of(self, name: str) -> Sequence[Measured]:
        """Returns the values of one metric."""
        if time.monotonic() > self._until:
            self._values = group_by_name(self._samples())
            self._until = time.monotonic() + _SHARED_SECONDS
        return self._values.get(name, ())
