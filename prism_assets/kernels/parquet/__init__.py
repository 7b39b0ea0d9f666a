"""Parquet objects of the lake: sorting, writing, and reading for merges."""
