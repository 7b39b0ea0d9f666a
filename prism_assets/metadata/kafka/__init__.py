"""Statements on topics of Kafka: registered topics, positions in partitions, and ranges of offsets."""
