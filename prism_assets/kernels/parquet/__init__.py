"""Parquet objects of the lake: how they are sorted, written, and read for a merge."""
