"""DuckLake: the catalog as views in PostgreSQL, read by a DuckDB with the extensions."""
