"""What the refusals of an object store become: errors of the error tree that name the object and what to do."""

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
from prism_assets.unreachable import how_to_reach

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
"""The prefix by whose listing a bucket is checked; there is nothing below it."""
_HOST = re.compile(r"https?://[^/\s\"?]+|(?<=connect to )[\w.-]+:\d+")
_METADATA = "169.254.169.254"
_TRIES = re.compile(r"Error performing \S+ \S+ .*? - ", re.DOTALL)
"""What the Rust client tells of its own tries, with words that would be taken for what happened."""
_NAMES = re.compile(r"https?://[^\s\"]+|'[^']*'|<(Resource|Key|BucketName)>[^<]*</\1>")
"""Addresses and keys: a key may have any word in it."""
_ANSWER = re.compile(r'^ +status: (\d+),(?:\n +body: Some\(\n +".*?<Code>(\w+)</Code>)?', re.MULTILINE)
"""What the Rust client shows of an answer: lines of its own, which no key can have, as paths are of one line."""
_STATUS = re.compile(r"status(?: code:)? (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|^(\w+): |AWS Error (\[code \d+\]|[A-Z_]+)")
_SILENT = ("error sending request", "connect", "CONNECTION", "Connect", "resolve")
_LATE = ("timed out", "imeout", "TIMEOUT")
_CUT = ("decod", "body", "IncompleteRead", "Connection broken", "closed before", "reset", "Empty reply")


def answer_of(error: Exception) -> tuple[int, str]:
    """The status and the code of S3 with which a store refused the Rust client; 0 and no code where it did not."""
    found = _ANSWER.search(str(error))
    return (int(found[1]), found[2] or "") if found else (0, "")


def missing_bucket(bucket: str) -> MissingBucket:
    """There is no such bucket."""
    return MissingBucket(f"bucket {bucket} does not exist: create it or correct its name")


def missing_object(where: str) -> ObjectMissing:
    """There is no object under this key."""
    return ObjectMissing(f"{where} does not exist")


def changed_object(where: str) -> ObjectChanged:
    """The object has another ETag by now."""
    return ObjectChanged(f"{where} is no longer the object that was discovered")


def denied(where: str, said: str = "") -> AccessDenied | ObjectArchived:
    """The store knows the caller and refuses, or does not know the caller; by its word, or only as the object rests.

    `said` holds the code of S3, and no key.
    """
    if "InvalidObjectState" in said:
        return ObjectArchived(f"{where}: it lies in an archive; restore it there, and it is read by itself")
    return AccessDenied(f"{where}: access denied; check the credentials and the policy of their owner")


def unclear(where: str, bucket: str, message: str) -> PrismError:
    """Whatever else a store says: by the codes of S3 in its message, or else something that may pass.

    The texts of the clients tell of their own tries, in words of their own; what is kept of them is who was asked and
    what he answered.
    """
    words = _NAMES.sub("", _TRIES.sub("", message.partition("\n\nDebug source")[0]))
    if "NoSuchBucket" in words or "NO_SUCH_BUCKET" in words:
        return missing_bucket(bucket)
    if "InvalidRange" in words or "range was invalid" in words:  # it is shorter than it was
        return changed_object(where)
    if "InvalidObjectState" in words or any(code in words for code in _DENIED):
        return denied(where, words)
    if "Too many open files" in _NAMES.sub("", message):
        return WorkerUnavailable(f"{where}: the machine of the worker has no open files left; raise their limit")
    found = _HOST.search(message)
    host = found[0] if found else ""
    if _METADATA in host or "redential" in words:
        return StoreUnavailable(
            f"{where}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"
        )
    return StoreUnavailable(f"{where}: the object store{f' at {host}' if host else ''} {_what_happened(words, host)}")


def _what_happened(words: str, host: str) -> str:
    code = next((group for match in _CODE.finditer(words) for group in match.groups() if group), "")
    status = _STATUS.search(words)
    if status or (code and code != "NETWORK_CONNECTION"):
        answer = " ".join(part for part in (status[1] if status else "", "" if code == "UNKNOWN" else code) if part)
        return f"answered {answer}; repeat later, and look there if that does not help"
    if any(word in words for word in _LATE):
        return "did not answer in time; repeat later, and look there if that does not help"
    if any(word in words for word in _CUT):
        return "broke off its answer; repeat later, and look there if that does not help"
    if any(word in words for word in _SILENT):
        return f"does not answer: {how_to_reach(host, 'PRISM_S3_ENDPOINT')}"
    return f"refuses it: {_first_line(words)}"


def _first_line(message: str) -> str:
    lines = message.strip().splitlines()
    return re.sub(r"^Generic \w+ error: ", "", lines[0])[:300] if lines else "it does not say why"


def place(bucket: str, key: str) -> str:
    """How messages name an object or a listing."""
    return f"bucket {bucket}" if key == PROBE else f"s3://{bucket}/{key}"
