"""Gives the Spark of a local stack Hadoop's client of S3, so that peers read and write through the same server."""

from __future__ import annotations

import os
from pathlib import Path

from prism_local import jars
from prism_local.stack import LocalStack

_JARS = (
    jars.Jar(
        "software.amazon.awssdk",
        "apache-client",
        "2.54.17",
        77_826,
        "0b00ae3d55c3d1213ca47b5651dc4c2a0080fc9b6192dde3d53c3da6c1811bcb",
    ),
    jars.Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        "3.4.2",
        936_997,
        "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
    ),
    jars.Jar(
        "software.amazon.awssdk",
        "s3-transfer-manager",
        "2.54.17",
        282_942,
        "7bef0ea4efd5e0860bab63e08317040951edb51b72a5be734284c28b8324ab87",
    ),
)
"""Of the version of Hadoop in Spark, and of the SDK in Iceberg's bundle."""
_SETTINGS = {
    "impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "path.style.access": "true",
    "connection.ssl.enabled": "false",
    "endpoint.region": "us-east-1",
    "fast.upload.buffer": "bytebuffer",
}


def write_defaults(stack: LocalStack) -> None:
    """Writes Spark's default settings. Call it after the start of S3 and before the start of Spark."""
    folder = Path(stack.place.run) / "spark" / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    found = stack.environment()
    secrets = {
        "endpoint": found["PRISM_S3_ENDPOINT"],
        "access.key": found["AWS_ACCESS_KEY_ID"],
        "secret.key": found["AWS_SECRET_ACCESS_KEY"],
    }
    lines = [f"spark.hadoop.fs.s3a.{key} {value}" for key, value in {**_SETTINGS, **secrets}.items()]
    # Tasks move their files to the target themselves: one copy of each object instead of two.
    lines.append("spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version 2")
    lines.append("spark.jars " + ",".join(str(jars.ensure_jar(jar, stack.place)) for jar in _JARS))
    file = folder / "spark-defaults.conf"
    file.write_text("\n".join(lines) + "\n")
    os.chmod(file, 0o600)
