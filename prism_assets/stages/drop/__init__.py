"""Drop: removes a table for good from catalogs, lake and PostgreSQL."""
