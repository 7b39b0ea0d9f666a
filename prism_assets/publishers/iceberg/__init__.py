"""Iceberg: the objects of a table, listed by snapshots that readers of Iceberg plan from. No object is copied."""
