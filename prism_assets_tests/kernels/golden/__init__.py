"""Results of every function allowed in expressions, by one version of DuckDB."""
