"""Spark through Spark Connect, with Iceberg's own catalog over JDBC."""

# lines
import os
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(os.environ["PRISM_SPARK_REMOTE"]).create()
database = urlsplit(os.environ["PRISM_DATABASE_URL"])
settings = {
    "spark.sql.catalog.prism": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.prism.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    "spark.sql.catalog.prism.uri": f"jdbc:postgresql://{database.hostname}:{database.port}{database.path}",
    "spark.sql.catalog.prism.jdbc.user": unquote(database.username or ""),
    "spark.sql.catalog.prism.jdbc.password": unquote(database.password or ""),
    "spark.sql.catalog.prism.jdbc.schema-version": "V1",
    "spark.sql.catalog.prism.warehouse": f"s3://{os.environ['PRISM_BUCKET']}/",
    "spark.sql.catalog.prism.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "spark.sql.catalog.prism.s3.endpoint": os.environ["PRISM_S3_ENDPOINT"],
    "spark.sql.catalog.prism.s3.path-style-access": "true",
    "spark.sql.catalog.prism.client.region": os.environ["AWS_REGION"],
}
for name, value in settings.items():
    spark.conf.set(name, value)
spark.sql("SELECT dt, count(*) FROM prism.log_iceberg.pv_log WHERE status = 404 GROUP BY dt").show()
# end

from typing import Any

TIME = "TIMESTAMP '{}+00:00'"
EXPLODE = "explode"


def version() -> str:
    iceberg = spark.sql("SELECT prism.system.iceberg_version()").collect()[0][0]
    return f"{spark.version}, Iceberg {iceberg}"


def source(asked: dict[str, Any]) -> str:
    at = "" if asked["snapshot_id"] is None else f" VERSION AS OF {asked['snapshot_id']}"
    return f"prism.{asked['identifier']}{at}"


def query(sql: str) -> list[list[Any]]:
    return [list(row) for row in spark.sql(sql).collect()]


def close() -> None:
    spark.stop()
