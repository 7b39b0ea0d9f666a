"""Credentials of AWS profiles for the Rust client, which knows only environment, web identity and roles of hosts.

boto3 finds the credentials of all other services. The same search finds those of S3, so all clients act as one
identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from prism_assets.domain.errors import SettingsError, StoreUnavailable
from prism_assets.kept import Kept
from prism_assets.unreachable import no_credentials_because

if TYPE_CHECKING:
    from obstore.store import S3Credential

_VALID_FOR = timedelta(minutes=10)
"""boto3 renews temporary credentials ten minutes before their end at the latest. The Rust client asks after five."""
_PROFILE = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
CREDENTIALS: Kept[tuple[str | None, ...], Any] = Kept()
"""Credentials that boto3 found, by profile and files. All buckets share them: a search may log in, or assume a role."""


def profile_credentials() -> Callable[[], S3Credential] | None:
    """Returns the credentials that boto3 finds, or None if the Rust client finds the same ones itself.

    Raises SettingsError for a profile that does not exist or cannot be read, and StoreUnavailable if a program or a
    service that the profile names gives no credentials.
    """
    files = [os.path.expanduser(os.environ.get(name, usual)) for name, usual in _FILES.items()]
    has_profiles = any(os.environ.get(name) for name in _PROFILE) or any(map(os.path.isfile, files))
    if os.environ.get("AWS_ACCESS_KEY_ID") or not has_profiles:
        return None
    names = (*(os.environ.get(name) for name in _PROFILE), *files)
    found = CREDENTIALS.get(names, make=_find, keeps=lambda found: found is not None)
    return None if found is None else partial(_to_s3_credential, found)


def _find() -> Any:
    try:
        import boto3  # a fifth of a second, and tasks may run without it
        from botocore.exceptions import BotoCoreError, ConfigParseError, PartialCredentialsError, ProfileNotFound
    except ImportError:
        return None
    try:
        return boto3.Session().get_credentials()
    except (ConfigParseError, PartialCredentialsError, ProfileNotFound) as error:
        raise SettingsError(
            f"the profile of AWS cannot be used: {error}; correct AWS_PROFILE, or the files of profiles"
        ) from error
    except (BotoCoreError, OSError, ValueError) as error:
        raise StoreUnavailable(no_credentials_because(error)) from error


def _to_s3_credential(found: Any) -> S3Credential:
    now = found.get_frozen_credentials()
    return {
        "access_key_id": now.access_key,
        "secret_access_key": now.secret_key,
        "token": now.token,
        "expires_at": datetime.now(timezone.utc) + _VALID_FOR,
    }
