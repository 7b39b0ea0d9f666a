"""Credentials of AWS profiles for the Rust client, which knows only environment, web identity and roles of hosts.

boto3 finds the credentials of all other services, so all clients of a process act as the same identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prism_assets.domain.errors import SettingsError

if TYPE_CHECKING:
    from obstore.store import S3Credential

_ASKED_AGAIN = timedelta(minutes=5)
"""boto3 renews temporary credentials ten minutes before their end at the latest."""
_PROFILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


def profile_credentials() -> Callable[[], S3Credential] | None:
    """Returns the credentials that boto3 finds, or None if the Rust client finds the same ones itself.

    Raises SettingsError for a profile that does not exist or cannot be read.
    """
    files = (Path(os.environ.get(name, usual)).expanduser() for name, usual in _PROFILES.items())
    if "AWS_ACCESS_KEY_ID" in os.environ or not any(file.is_file() for file in files):
        return None
    try:
        import boto3  # a fifth of a second, and tasks may run without it
        from botocore.exceptions import BotoCoreError
    except ImportError:
        return None
    try:
        found = boto3.Session().get_credentials()
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(f"AWS has no credentials as the environment and its profiles say: {error}") from error
    return None if found is None else partial(_present, found)


def _present(found: Any) -> S3Credential:
    now = found.get_frozen_credentials()
    return {
        "access_key_id": now.access_key,
        "secret_access_key": now.secret_key,
        "token": now.token,
        "expires_at": datetime.now(timezone.utc) + _ASKED_AGAIN,
    }
