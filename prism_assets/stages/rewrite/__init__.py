"""Rewrite: the only way to replace objects, for every kind of rewrite."""
