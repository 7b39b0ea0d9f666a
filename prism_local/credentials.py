"""The generated secrets of a stack, and its `env` file with connection settings for clients."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from prism_assets.domain.names import LAKE_READER
from prism_local import layout
from prism_local.layout import Layout

REGION = "us-east-1"
USER = "prism"
DATABASES = ("prism", "dagster")
LAKE_BUCKET = "prism-lake"
STAGING_BUCKET = "prism-staging"


def _secret() -> str:
    return secrets.token_hex(20)


@dataclass(frozen=True)
class Credentials:
    """Generated at the first start. Hexadecimal, so URLs, shells and properties files need no quoting."""

    database_password: str = field(default_factory=_secret, repr=False)
    access_key: str = field(default_factory=lambda: "PRISM" + secrets.token_hex(8).upper(), repr=False)
    secret_key: str = field(default_factory=_secret, repr=False)
    spark_token: str = field(default_factory=_secret, repr=False)
    reader_password: str = field(default_factory=_secret, repr=False)


def load(place: Layout) -> Credentials:
    """Returns a stack's credentials. Generates and stores missing ones."""
    stored = layout.read_json(place.credentials)
    values = {f.name: str(stored[f.name]) for f in fields(Credentials) if f.name in stored}
    found = Credentials(**values)
    if len(values) < len(fields(Credentials)):
        layout.write_private(place.credentials, json.dumps(asdict(found), indent=2) + "\n")
    return found


def aws_variables(found: Credentials) -> dict[str, str]:
    """Returns the environment variables with the local S3's keys, for AWS clients and Spark's Python tasks."""
    return {
        "AWS_ACCESS_KEY_ID": found.access_key,
        "AWS_SECRET_ACCESS_KEY": found.secret_key,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }


def environment(found: Credentials, ports: Mapping[str, int]) -> dict[str, str]:
    """Returns the connection settings of services with known ports."""
    values: dict[str, str] = {}
    if port := ports.get("postgres"):
        values["PRISM_DATABASE_URL"] = (
            f"postgresql+psycopg://{USER}:{found.database_password}@127.0.0.1:{port}/{DATABASES[0]}"
        )
        values |= {"PRISM_DAGSTER_PG_HOST": "127.0.0.1", "PRISM_DAGSTER_PG_PORT": str(port)}
        values |= {"PRISM_DAGSTER_PG_USER": USER, "PRISM_DAGSTER_PG_PASSWORD": found.database_password}
        values["PRISM_DAGSTER_PG_DB"] = DATABASES[1]
        values["PRISM_DUCKLAKE"] = "on"
        values["PRISM_DUCKLAKE_URL"] = (
            f"postgresql://{LAKE_READER}:{found.reader_password}@127.0.0.1:{port}/{DATABASES[0]}"
        )
    if port := ports.get("s3"):
        values |= {"PRISM_BUCKET": LAKE_BUCKET, "PRISM_S3_ENDPOINT": f"http://127.0.0.1:{port}"}
        values["PRISM_OBJECT_TAGS"] = "false"  # the local S3 stores no tags
    if port := ports.get("aws"):
        values |= {f"PRISM_{name}_ENDPOINT": f"http://127.0.0.1:{port}" for name in ("GLUE", "SQS")}
    values |= aws_variables(found)
    if port := ports.get("kafka"):
        values["PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS"] = f"127.0.0.1:{port}"
    if port := ports.get("spark"):
        # Without TLS, the client sends a token only to a server named localhost.
        values["PRISM_SPARK_REMOTE"] = f"sc://localhost:{port}"
        values["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = found.spark_token
    return values


def write_environment(path: Path, values: Mapping[str, str]) -> None:
    """Writes the `env` file unless its content is the same already."""
    if path.exists() and read_environment(path) == dict(values) and path.stat().st_mode & 0o077 == 0:
        return
    layout.write_private(path, "".join(f"{key}={value}\n" for key, value in values.items()))


def read_environment(path: Path) -> dict[str, str]:
    """Reads KEY=value lines; a missing file is empty."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value for key, _, value in pairs}
