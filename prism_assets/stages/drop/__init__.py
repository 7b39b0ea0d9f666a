"""Drop: a table goes for good, out of catalogs, out of the lake, and out of what is recorded."""
