"""Settings of Spark for the local stack's Iceberg tables under concurrent commits."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from prism_assets.settings import Settings


def spark_catalog(settings: Settings) -> dict[str, str]:
    """Returns catalog settings, each after `spark.sql.catalog.NAME`. The cache is off, so Spark sees every commit."""
    database = urlsplit(settings.database_url.get_secret_value())
    return {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        ".uri": f"jdbc:postgresql://{database.hostname}:{database.port}{database.path}",
        ".jdbc.user": unquote(database.username or ""),
        ".jdbc.password": unquote(database.password or ""),
        ".jdbc.schema-version": "V1",
        ".warehouse": f"s3://{settings.bucket}/",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": str(settings.s3_endpoint),
        ".s3.path-style-access": "true",
        ".client.region": settings.region,
        ".cache-enabled": "false",
    }
