"""References to secrets: a setting names the place of its secret instead of holding it.

`file:/run/secrets/name` is the content of a file, `env:NAME` another variable, and
`aws-secretsmanager:NAME-OR-ARN#key` a secret of AWS Secrets Manager, or one value of its JSON object. The password of
a database may also be `aws-rds-iam`: each session then gets its own token of Amazon RDS.

A secret that is found is used as it is, so no reference leads to another one.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from prism_assets.domain.errors import SecretsUnavailable, SettingsError
from prism_assets.domain.names import did_you_mean

TOKEN_OF_RDS = "aws-rds-iam"
_FILE, _VARIABLE, _SECRETS_MANAGER = "file:", "env:", "aws-secretsmanager:"
_PREFIXES = (_FILE, _VARIABLE, _SECRETS_MANAGER)
_LOOKS_LIKE_ONE = re.compile(r"(aws-[a-z-]+)(?::|$)")
_REGION_OF_ARN = re.compile(r"arn:[^:]+:secretsmanager:([^:]+):")
_REGION_OF_HOST = re.compile(r"\.([a-z0-9-]+)\.rds\.amazonaws\.com(?:\.cn)?$")
_LARGEST_FILE = 1 << 20
_KEPT_SECONDS = 300.0
"""Seconds that an answer of AWS serves a process. A refused password asks again at once."""
_TRIES, _CONNECT_SECONDS, _ANSWER_SECONDS = 3, 5.0, 10.0
_MOST_KEPT = 256
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _Kept:
    value: str
    until: float


_lock = threading.Lock()
_kept: dict[str, _Kept] = {}
"""The last answer by reference."""
_seen: dict[str, None] = {}
"""Values that references led to, the newest last. Former passwords stay: their sessions may still work, and messages
hide them.
"""


def is_reference(text: str) -> bool:
    """Whether a setting names the place of its secret."""
    return text.startswith(_PREFIXES) or text == TOKEN_OF_RDS


def secret_at(text: str, *, again: bool = False) -> str:
    """Returns the secret of a reference, and any other text unchanged. `again` asks AWS even for a recent answer.

    Raises SettingsError for a wrong reference, and SecretsUnavailable if AWS does not answer.
    """
    if text.startswith(_FILE):
        return _keep(text, _content_of(text.removeprefix(_FILE)))
    if text.startswith(_VARIABLE):
        return _variable(text.removeprefix(_VARIABLE))
    if text.startswith(_SECRETS_MANAGER):
        kept = _kept.get(text)
        if kept is not None and not again and time.monotonic() < kept.until:
            return kept.value
        return _keep(text, _from_secrets_manager(text))
    if text == TOKEN_OF_RDS:
        raise SettingsError(f"{TOKEN_OF_RDS} is a password of a database, and of nothing else")
    if found := _LOOKS_LIKE_ONE.match(text):
        known = (_SECRETS_MANAGER.rstrip(":"), TOKEN_OF_RDS)
        raise SettingsError(f"{found[1]} is no place of secrets{did_you_mean(found[1], known)}")
    return text


def password_at(text: str, *, host: str, port: int, user: str, again: bool = False) -> str:
    """Returns the password for a new session: of a reference, a new token of RDS, or the text itself."""
    if text != TOKEN_OF_RDS:
        return secret_at(text, again=again)
    return _keep(f"{TOKEN_OF_RDS} {user}@{host}:{port}", _token(host, port, user))


def secrets_seen() -> frozenset[str]:
    """Returns the secrets that references of this process led to, for hiding them in messages."""
    with _lock:
        return frozenset(_seen)


def _keep(reference: str, value: str) -> str:
    with _lock:
        _renew(_kept, reference, _Kept(value, time.monotonic() + _KEPT_SECONDS))
        _renew(_seen, value, None)
    return value


def _renew(held: dict[str, _Value], name: str, value: _Value) -> None:
    held.pop(name, None)
    while len(held) >= _MOST_KEPT:
        del held[next(iter(held))]
    held[name] = value


def _content_of(path: str) -> str:
    place = Path(path)
    try:
        if not place.is_file():  # reading a pipe would wait for its writer
            raise SettingsError(f"the file {path} with the secret does not exist")
        if place.stat().st_size > _LARGEST_FILE:
            raise SettingsError(f"the file {path} is too large for a secret")
        content = place.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise SettingsError(f"the file {path} with the secret cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the file {path} with the secret is no text in UTF-8") from None
    if not content:
        raise SettingsError(f"the file {path} with the secret is empty")
    return content


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise SettingsError(f"the variable {name} with the secret is not set")
    return _keep(f"{_VARIABLE}{name}", value)


def _from_secrets_manager(reference: str) -> str:
    name, _, key = reference.removeprefix(_SECRETS_MANAGER).partition("#")
    if not name:
        raise SettingsError(f"must look like {_SECRETS_MANAGER}NAME-OR-ARN#key")
    stored = _stored_secret(name)
    if not key:
        return stored
    try:
        value = json.loads(stored)[key]
    except (ValueError, TypeError):
        raise SettingsError(f"the secret {name} is no JSON object, so it has no {key}") from None
    except KeyError:
        raise SettingsError(f"the secret {name} has no value {key}") from None
    if not isinstance(value, str) or not value:
        raise SettingsError(f"the value {key} of the secret {name} is no text")
    return value


def _stored_secret(name: str) -> str:
    import botocore.exceptions  # boto3 takes a fifth of a second, and most settings are no references

    region = found[1] if (found := _REGION_OF_ARN.match(name)) else _region()
    try:
        answer = _client("secretsmanager", region).get_secret_value(SecretId=name)
    except botocore.exceptions.NoCredentialsError:
        raise SettingsError(f"there are no credentials of AWS to read the secret {name}") from None
    except botocore.exceptions.ClientError as error:
        raise _refused(name, error) from None
    except botocore.exceptions.BotoCoreError as error:
        reason = str(error).strip().splitlines()[0]
        raise SecretsUnavailable(f"AWS Secrets Manager does not answer for {name} ({reason}); repeat") from None
    stored = answer.get("SecretString")
    if not stored:
        raise SettingsError(f"the secret {name} holds no text")
    return str(stored)


def _refused(name: str, error: Any) -> Exception:
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500 or code in ("ThrottlingException", "RequestLimitExceeded"):
        return SecretsUnavailable(f"AWS Secrets Manager has no answer for {name} now ({code}); repeat")
    if code == "ResourceNotFoundException":
        return SettingsError(f"AWS Secrets Manager has no secret {name}: correct its name or AWS_REGION")
    if code.startswith("AccessDenied"):
        return SettingsError(f"the role may not read the secret {name}: grant secretsmanager:GetSecretValue")
    return SettingsError(f"AWS Secrets Manager refuses the secret {name}: {code}")


def _token(host: str, port: int, user: str) -> str:
    import botocore.exceptions

    region = found[1] if (found := _REGION_OF_HOST.search(host)) else _region()
    try:
        client = _client("rds", region)
        return str(client.generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user, Region=region))
    except botocore.exceptions.NoCredentialsError:
        raise SettingsError(f"there are no credentials of AWS to make the token of {user} at {host}") from None
    except botocore.exceptions.BotoCoreError as error:
        reason = str(error).strip().splitlines()[0]
        raise SecretsUnavailable(f"the token of {user} at {host} cannot be made ({reason}); repeat") from None


def _client(service: str, region: str) -> Any:
    from prism_assets.aws_clients import Patience, aws_client

    return aws_client(service, None, region, Patience(_TRIES, _CONNECT_SECONDS, _ANSWER_SECONDS))


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
