"""Session lines for DuckLake clients: the address of the catalog, and access to the objects."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import LAKE_READER
from prism_assets.domain.sql_quoting import quote_text
from prism_assets.settings import Settings

CATALOG = "lake"
"""The catalog's name in the session lines. Any other name works, too."""
_EXTENSIONS = ("ducklake", "httpfs", "postgres")
_BLANK = "…"
_OPTIONS = frozenset({"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "channel_binding"})
"""Connection options after `?` that apply to readers as well."""
_PLAIN = re.compile(r"[\w.:/@%+,~-]+")


def session_lines(settings: Settings, *, with_secrets: bool = False) -> Sequence[str]:
    """Returns the statements that open the lake in DuckDB, each with its semicolon. Raises WrongUse if DuckLake is off.

    Without `with_secrets` the S3 key is left blank, and libpq takes the role's password from PGPASSWORD.
    """
    if not settings.ducklake:
        raise WrongUse(
            "PRISM_DUCKLAKE is off: clients of DuckLake connect to PostgreSQL itself; set it to on where they may, "
            "and see `prism ducklake role`"
        )
    secret = [] if settings.local_root else [_s3_secret(settings, with_secrets=with_secrets)]
    extensions = [*_EXTENSIONS, *(["aws"] if any("credential_chain" in line for line in secret) else [])]
    attach = attach_line(settings, with_secrets=with_secrets)
    return (*(f"INSTALL {name}; LOAD {name};" for name in extensions), *secret, attach)


def example(names: Sequence[str]) -> str:
    """Returns a first query to try."""
    table = f"{CATALOG}.{names[0]}" if names else f"{CATALOG}.schema.table"
    return f"SELECT dt, count(*) FROM {table} GROUP BY dt ORDER BY dt;"


def attach_line(settings: Settings, *, with_secrets: bool) -> str:
    """Returns the ATTACH statement for the readers' role."""
    words = {name: value for name, value in _connection(settings, with_secrets=with_secrets).items() if value}
    connection = " ".join(f"{name}={_in_libpq(value)}" for name, value in words.items())
    address = quote_text(f"ducklake:postgres:{connection}")
    return f"ATTACH {address} AS {CATALOG} (READ_ONLY, METADATA_SCHEMA 'prism_lake');"


def _connection(settings: Settings, *, with_secrets: bool) -> dict[str, str]:
    """Returns PostgreSQL's address for readers: their own address if set, or the platform's with the readers' role."""
    reader_url = settings.ducklake_url.get_secret_value() if settings.ducklake_url else None
    parts = urlsplit(reader_url or settings.database_url.get_secret_value())
    options = {name: value for name, value in parse_qsl(parts.query) if name in _OPTIONS}
    return {
        "dbname": unquote(parts.path.removeprefix("/")),
        "host": parts.hostname or "",
        "port": str(parts.port or 5432),
        "user": unquote(parts.username or LAKE_READER) if reader_url else LAKE_READER,
        "password": unquote(parts.password or "") if reader_url and with_secrets else "",
        **options,
    }


def _s3_secret(settings: Settings, *, with_secrets: bool) -> str:
    key, secret = (
        os.environ.get(name, "") if with_secrets else _BLANK for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    )
    options = ["TYPE s3"]
    if settings.s3_endpoint or with_secrets:
        options += [f"KEY_ID {quote_text(key)}", f"SECRET {quote_text(secret)}"]
    else:
        options += ["PROVIDER credential_chain"]
    options.append(f"REGION {quote_text(settings.region)}")
    if settings.s3_endpoint:
        endpoint = urlsplit(settings.s3_endpoint)
        is_tls = str(endpoint.scheme == "https").lower()
        options += [f"ENDPOINT {quote_text(endpoint.netloc)}", "URL_STYLE 'path'", f"USE_SSL {is_tls}"]
    options.append(f"SCOPE {quote_text(f's3://{settings.bucket}/{settings.prefix}')}")
    return f"CREATE SECRET ({', '.join(options)});"


def _in_libpq(value: str) -> str:
    """Quotes a value for libpq unless it is a plain word."""
    if _PLAIN.fullmatch(value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
