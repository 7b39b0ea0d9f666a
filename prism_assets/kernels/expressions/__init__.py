"""SQL expressions of tables: the allowed functions, their execution in DuckDB, and the typing of results."""
