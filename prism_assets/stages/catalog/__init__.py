"""Catalog: closes and switches days, and publishes them."""
