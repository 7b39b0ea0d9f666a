"""A log lake on S3 as Dagster assets: JSON objects in, live and merged Parquet out, nothing lost or doubled."""

__version__ = "0.1.0"
