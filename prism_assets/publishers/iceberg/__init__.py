"""Iceberg: snapshots list the lake's objects for Iceberg readers. No object is copied."""
