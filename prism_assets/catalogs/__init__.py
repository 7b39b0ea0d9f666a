"""Data catalogs that readers ask where the rows of a partition are."""
