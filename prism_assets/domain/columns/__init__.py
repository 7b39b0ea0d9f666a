"""Columns: types, names, and how they change."""
