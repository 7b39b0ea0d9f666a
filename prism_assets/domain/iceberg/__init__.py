"""Iceberg tables: snapshots, commits and health."""
