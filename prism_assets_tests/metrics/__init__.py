"""Metrics: the registry, its text, OTLP, the exporter, and the files for Prometheus and Grafana."""
