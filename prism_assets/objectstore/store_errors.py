"""Translates errors of the object store into the error tree. Messages name the object and the remedy."""

from __future__ import annotations

import re

from prism_assets.domain.errors import (
    AccessDenied,
    MissingBucket,
    ObjectArchived,
    ObjectChanged,
    ObjectMissing,
    PrismError,
    StoreUnavailable,
    WorkerUnavailable,
)
from prism_assets.unreachable import how_to_reach, no_credentials_because, without_credentials

_DENIED = (
    "AccessDenied",
    "ACCESS_DENIED",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "INVALID_ACCESS_KEY_ID",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "SIGNATURE_DOES_NOT_MATCH",
)
PROBE = "prism-assets-bucket-check/"
"""The prefix listed to check a bucket. No object has it."""
_HOST = re.compile(r"https?://[^/\s\"?]+|(?<=connect to )[\w.-]+:\d+")
_METADATA = "169.254.169.254"
_TRIES = re.compile(r"Error performing \S+ \S+ .*? - ", re.DOTALL)
"""The Rust client's report on its own retries. Its words could be mistaken for the cause."""
_NAMES = re.compile(r"https?://[^\s\"]+|'[^']*'|<(Resource|Key|BucketName)>[^<]*</\1>")
"""Addresses and keys, because a key may contain any word."""
_ANSWER = re.compile(r'^ +status: (\d+),(?:\n +body: Some\(\n +".*?<Code>(\w+)</Code>)?', re.MULTILINE)
"""The Rust client's rendering of an answer. It spans lines, and a path has no line break, so no key can imitate it."""
_PROVIDER = "External AWS credential provider: "
"""The Rust client's words before the error of a function that gives credentials."""
_DEBUG = "\n\nDebug source"
_STATUS = re.compile(r"status(?: code:)? (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|^(\w+): |AWS Error (\[code \d+\]|[A-Z_]+)")
_SILENT = ("error sending request", "connect", "CONNECTION", "Connect", "resolve")
_LATE = ("timed out", "imeout", "TIMEOUT")
_CUT = ("decod", "body", "IncompleteRead", "Connection broken", "closed before", "reset", "Empty reply")


def answer_of(error: Exception) -> tuple[int, str]:
    """Returns the HTTP status and S3 error code in an error of the Rust client, or 0 and ""."""
    found = _ANSWER.search(str(error))
    return (int(found[1]), found[2] or "") if found else (0, "")


def missing_bucket(bucket: str) -> MissingBucket:
    """Returns the error for a bucket that does not exist."""
    return MissingBucket(f"bucket {bucket} does not exist: create it or correct its name")


def missing_object(where: str) -> ObjectMissing:
    """Returns the error for an object that does not exist."""
    return ObjectMissing(f"{where} does not exist")


def changed_object(where: str) -> ObjectChanged:
    """Returns the error for an object with another ETag than expected."""
    return ObjectChanged(f"{where} is no longer the object that was discovered")


def denied(where: str, said: str = "") -> AccessDenied | ObjectArchived:
    """Returns the error for a store that refuses the caller, or for an archived object.

    `said` holds the error code of S3 and no key.
    """
    if "InvalidObjectState" in said:
        return ObjectArchived(f"{where} is archived: restore it in the store, and a later run reads it")
    return AccessDenied(f"{where}: access denied; check the credentials and the policy of their owner")


def unauthenticated(where: str, error: Exception) -> PrismError:
    """Returns the error for a caller without valid credentials: an outage, if AWS gave none to a profile."""
    _, is_ours, cause = str(error).partition(_PROVIDER)
    if is_ours:
        return StoreUnavailable(f"{where}: {no_credentials_because(cause.partition(_DEBUG)[0])}")
    return denied(where, answer_of(error)[1])


def unclear(where: str, bucket: str, message: str) -> PrismError:
    """Translates any other message of a store by its S3 error codes. Unknown messages become transient errors.

    The clients describe their own retries in their own words. Only the host asked and its answer are kept.
    """
    words = _NAMES.sub("", _TRIES.sub("", message.partition(_DEBUG)[0]))
    if "NoSuchBucket" in words or "NO_SUCH_BUCKET" in words:
        return missing_bucket(bucket)
    if "InvalidRange" in words or "range was invalid" in words:  # the object is shorter than before
        return changed_object(where)
    if "InvalidObjectState" in words or any(code in words for code in _DENIED):
        return denied(where, words)
    if "Too many open files" in _NAMES.sub("", message):
        return WorkerUnavailable(f"{where}: the machine of the worker has no open files left; raise their limit")
    found = _HOST.search(message)
    host = found[0] if found else ""
    if _METADATA in host or "redential" in words:
        return StoreUnavailable(without_credentials(where))
    return StoreUnavailable(f"{where}: the object store{f' at {host}' if host else ''} {_what_happened(words, host)}")


def _what_happened(words: str, host: str) -> str:
    code = next((group for match in _CODE.finditer(words) for group in match.groups() if group), "")
    status = _STATUS.search(words)
    if status or (code and code != "NETWORK_CONNECTION"):
        answer = " ".join(part for part in (status[1] if status else "", "" if code == "UNKNOWN" else code) if part)
        return f"answered {answer}; repeat later; if it persists, check the store"
    if any(word in words for word in _LATE):
        return "did not answer in time; repeat later; if it persists, check the store"
    if any(word in words for word in _CUT):
        return "broke off its answer; repeat later; if it persists, check the store"
    if any(word in words for word in _SILENT):
        return f"does not answer: {how_to_reach(host, 'PRISM_S3_ENDPOINT')}"
    return f"refuses it: {_first_line(words)}"


def _first_line(message: str) -> str:
    lines = message.strip().splitlines()
    return re.sub(r"^Generic \w+ error: ", "", lines[0])[:300] if lines else "it does not say why"


def place(bucket: str, key: str) -> str:
    """Returns the name of an object or a listing for messages."""
    return f"bucket {bucket}" if key == PROBE else f"s3://{bucket}/{key}"
