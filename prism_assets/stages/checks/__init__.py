"""Checks: what people must know of a table."""
