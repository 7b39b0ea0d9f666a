"""Code to paste into Iceberg readers. It contains no user and no password: PGUSER and PGPASSWORD supply them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from dagster import MarkdownMetadataValue, MetadataValue

from prism_assets.settings import Settings

CATALOG = "prism"
"""The catalog's name in PostgreSQL. Spark and Trino look tables up by this name."""
_PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
    "org.postgresql:postgresql:42.7.14",
)


def snippets(settings: Settings, identifier: str, metadata_location: str) -> MarkdownMetadataValue:
    """Returns code for Spark, Trino, DuckDB and PyIceberg to read `database.table` in this installation."""
    blocks = {
        "Spark": ("sh", _spark(settings, identifier)),
        "Trino, etc/catalog/prism.properties": ("properties", _trino(settings)),
        "Trino": ("sql", f"SELECT count(*) FROM {CATALOG}.{identifier};"),
        "DuckDB, this snapshot": ("sql", _duckdb(settings, metadata_location)),
        "PyIceberg": ("python", _pyiceberg(settings, identifier)),
    }
    return MetadataValue.md("\n\n".join(f"{name}\n```{kind}\n{code}\n```" for name, (kind, code) in blocks.items()))


def _spark(settings: Settings, identifier: str) -> str:
    options = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": _jdbc(settings),
        ".jdbc.user": "$PGUSER",
        ".jdbc.password": "$PGPASSWORD",
        ".jdbc.schema-version": "V0",
        ".warehouse": f"s3://{settings.bucket}/{settings.prefix}",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".client.region": settings.region,
        **({".s3.endpoint": settings.s3_endpoint, ".s3.path-style-access": "true"} if settings.s3_endpoint else {}),
    }
    lines = [
        "spark-sql",
        f"--packages {','.join(_PACKAGES)}",
        "--conf spark.sql.catalogImplementation=in-memory",  # otherwise it creates a metastore in the current folder
        *(f'--conf "spark.sql.catalog.{CATALOG}{name}={value}"' for name, value in options.items()),
        f'-e "SELECT count(*) FROM {CATALOG}.{identifier}"',
    ]
    return " \\\n  ".join(lines)


def _trino(settings: Settings) -> str:
    endpoint = [f"s3.endpoint={settings.s3_endpoint}", "s3.path-style-access=true"] if settings.s3_endpoint else []
    return "\n".join(
        [
            "connector.name=iceberg",
            "iceberg.catalog.type=jdbc",
            f"iceberg.jdbc-catalog.catalog-name={CATALOG}",
            "iceberg.jdbc-catalog.driver-class=org.postgresql.Driver",
            f"iceberg.jdbc-catalog.connection-url={_jdbc(settings)}",
            "iceberg.jdbc-catalog.connection-user=${ENV:PGUSER}",
            "iceberg.jdbc-catalog.connection-password=${ENV:PGPASSWORD}",
            f"iceberg.jdbc-catalog.default-warehouse-dir=s3://{settings.bucket}/{settings.prefix}",
            "fs.native-s3.enabled=true",
            f"s3.region={settings.region}",
            *endpoint,
        ]
    )


def _duckdb(settings: Settings, metadata_location: str) -> str:
    """Returns code for one fixed snapshot, because DuckDB cannot ask a catalog in PostgreSQL."""
    options = ["TYPE s3", "PROVIDER credential_chain", f"REGION '{settings.region}'"]
    if settings.s3_endpoint:
        parts = urlsplit(settings.s3_endpoint)
        encrypted = "true" if parts.scheme == "https" else "false"
        options += [f"ENDPOINT '{parts.netloc}'", "URL_STYLE 'path'", f"USE_SSL {encrypted}"]
    return "\n".join(
        [
            "INSTALL iceberg; LOAD iceberg; INSTALL httpfs; LOAD httpfs; INSTALL aws; LOAD aws;",
            f"CREATE SECRET ({', '.join(options)});",
            f"SELECT count(*) FROM iceberg_scan('{metadata_location}');",
        ]
    )


def _pyiceberg(settings: Settings, identifier: str) -> str:
    place, query = _database(settings)
    options = {
        "type": "sql",
        "uri": f"postgresql+psycopg://{place}{query}",
        "init_catalog_tables": "false",
        "s3.region": settings.region,
        **({"s3.endpoint": settings.s3_endpoint} if settings.s3_endpoint else {}),
    }
    lines = [f'    "{name}": "{value}",' for name, value in options.items()]
    return "\n".join(
        [
            "from pyiceberg.catalog import load_catalog",
            "",
            f'catalog = load_catalog("{CATALOG}", **{{',
            *lines,
            "})",
            f'rows = catalog.load_table("{identifier}").scan().to_arrow()',
        ]
    )


def _jdbc(settings: Settings) -> str:
    place, query = _database(settings)
    return f"jdbc:postgresql://{place}{query}"


def _database(settings: Settings) -> tuple[str, str]:
    """Returns `host:port/database` and the encryption mode, without user and password."""
    parts = urlsplit(settings.database_url.get_secret_value())
    host = parts.hostname or ""
    mode = parse_qs(parts.query).get("sslmode", [])
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{parts.port or 5432}{parts.path}", f"?sslmode={mode[0]}" if mode else ""
