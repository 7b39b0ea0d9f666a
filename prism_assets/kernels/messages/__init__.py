"""Spool objects: messages of Kafka in Parquet, and the way from a message to a line."""
