"""Results of every function that expressions may call, as one version of DuckDB gave them."""
