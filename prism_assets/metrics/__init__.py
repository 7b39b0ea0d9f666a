"""Ways of metrics to those who watch: the text format of Prometheus, and OTLP."""
