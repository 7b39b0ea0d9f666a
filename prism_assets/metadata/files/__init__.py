"""Statements on small objects, ranges and merges."""
