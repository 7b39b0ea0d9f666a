"""SQL expressions of tables: which are allowed, how they run in DuckDB, and what becomes of their results."""
