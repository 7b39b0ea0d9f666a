"""Translates errors of an Iceberg catalog into the error tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: TID251  # those of the library's catalog in PostgreSQL

from prism_assets.domain.errors import AccessDenied, CatalogUnavailable, InvariantBroken, ObjectMissing, PrismError
from prism_assets.transactions import refuse_inside_transaction

_ANSWERS = (CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError)
_DENIED_STATES = ("42501", "28")  # SQLSTATE of PostgreSQL: no right, no login
_DENIED_CODES = ("AccessDenied", "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Translates errors and names the attempted action. Passes on answers that the publisher handles itself."""
    refuse_inside_transaction("the Iceberg catalog")
    try:
        yield
    except ObjectMissing as error:
        raise ObjectMissing(f"could not {doing}: {error}") from error
    except (PrismError, *_ANSWERS):
        raise
    except Exception as error:
        raise _named(error, doing) from error


def _named(error: Exception, doing: str) -> PrismError:
    message = f"could not {doing}: {_first_line(error)}"
    if _is_denied(error):
        return AccessDenied(f"{message}; give this role the right, or correct the credentials")
    if isinstance(error, (SQLAlchemyError, BotoCoreError, ClientError, RESTError, requests.RequestException, OSError)):
        return CatalogUnavailable(message)
    if isinstance(
        error, (ValidationError, ValueError, LookupError, TypeError, AttributeError, AssertionError, EOFError)
    ):
        return InvariantBroken(f"{message}; its metadata cannot be read: see docs/iceberg.md#commits-of-others")
    return CatalogUnavailable(message)


def _is_denied(error: Exception) -> bool:
    if isinstance(error, (UnauthorizedError, ForbiddenError, OAuthError)):
        return True
    if isinstance(error, ClientError):
        return error.response.get("Error", {}).get("Code") in _DENIED_CODES
    if isinstance(error, DBAPIError):
        return str(getattr(error.orig, "sqlstate", None) or "").startswith(_DENIED_STATES)
    return False


def _first_line(error: Exception) -> str:
    """Returns the server's message without the statement sent by PyIceberg."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(error).__name__
