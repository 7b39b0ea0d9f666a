"""The secrets of this process, for hiding them in messages."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from urllib.parse import parse_qs, unquote, urlsplit

from prism_assets.domain.errors import PrismError
from prism_assets.domain.names import SECRET_PREFIX
from prism_assets.kafka.connections import SECRETS_OF_CLUSTERS
from prism_assets.secret_references import is_reference, secret_at, secrets_seen
from prism_assets.settings import load_alert_settings, load_settings

_SECRET_VARIABLES = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    "PRISM_DATABASE_PASSWORD",
    "PRISM_DAGSTER_PG_PASSWORD",
    "PGPASSWORD",
    "PRISM_ICEBERG_REST_TOKEN",
    "PRISM_ICEBERG_REST_CREDENTIAL",
)
"""Secrets read from the environment by clients of the object store, AWS, Spark, Dagster and PostgreSQL."""
_KAFKA = "PRISM_KAFKA_"
_OF_SPARK = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""The names of settings whose values Spark hides, by its default of `spark.redaction.regex`."""
_SWITCHES = ("true", "false")


def secret_values() -> frozenset[str]:
    """Returns all readable secrets of the process.

    Finds secrets in the environment even if other settings are missing or wrong, because such errors have messages.
    """
    found: set[str] = set(secrets_seen())
    with suppress(PrismError):
        found.add(load_alert_settings().alert.get_secret_value().partition(":")[2])
    with suppress(PrismError):
        settings = load_settings()
        found |= _secrets_of_database(settings.database_url.get_secret_value()) | _token_of(settings.spark_remote)
        for secret in (settings.iceberg_rest_credential, settings.iceberg_rest_token):
            found |= set(secret.get_secret_value().split(":")) if secret else set()
        found |= {value for name, value in settings.spark_config.items() if _is_secret_of_spark(name, value)}
        if settings.ducklake_url:
            found |= _secrets_of_database(settings.ducklake_url.get_secret_value())
    for name in ("PRISM_DATABASE_URL", "PRISM_DUCKLAKE_URL"):
        found |= _secrets_of_database(os.environ.get(name, ""))
    found |= _token_of(os.environ.get("PRISM_SPARK_REMOTE", ""))
    found |= {_known(value) for name, value in os.environ.items() if _is_secret(name)}
    return frozenset(found - {""})


def _known(text: str) -> str:
    """Returns the secret of a readable reference, nothing for another reference, and other text unchanged."""
    with suppress(PrismError):
        return secret_at(text)
    return "" if is_reference(text) else text


def _is_secret(name: str) -> bool:
    """Whether a variable of the environment holds a secret of prism, of a cluster of Kafka or of a client."""
    if name.startswith(_KAFKA):
        return name.endswith(SECRETS_OF_CLUSTERS)
    return name in _SECRET_VARIABLES or name.startswith(SECRET_PREFIX)


def _is_secret_of_spark(name: str, value: str) -> bool:
    """Whether a setting of Spark holds a secret. Switches and numbers do not: hidden, they would blot out messages."""
    return bool(_OF_SPARK.search(name)) and value not in _SWITCHES and not value.isdecimal()


def _secrets_of_database(url: str) -> set[str]:
    """Returns the URL and its password, as written and decoded."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return {url}
    passwords = {parts.password or "", *parse_qs(parts.query).get("password", ())}
    known = {password for password in passwords if not is_reference(unquote(password))}
    return {url, *known, *map(unquote, known), *(_known(unquote(password)) for password in passwords - known)}


def _token_of(remote: str) -> set[str]:
    """Returns the token of an address such as `sc://host:15002/;token=…;use_ssl=true`."""
    token = remote.partition(";token=")[2].partition(";")[0]
    return {token, unquote(token)}
