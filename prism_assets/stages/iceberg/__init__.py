"""Iceberg: commits the difference between PostgreSQL and each table's snapshot."""
