"""Statements on Iceberg tables, and on the views that clients of DuckLake read."""
