"""Catalog: closes days, switches readers, and has the catalog show it."""
