"""Formats of metrics: the text of Prometheus, and OTLP."""
