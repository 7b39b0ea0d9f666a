"""DuckLake: the catalog as views in PostgreSQL, read by the DuckDB that has the extensions."""
