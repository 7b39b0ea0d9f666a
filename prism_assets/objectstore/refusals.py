"""What the refusals of an object store become: errors of the error tree that name the object and what to do."""

from __future__ import annotations

from prism_assets.domain.errors import (
    AccessDenied,
    MissingBucket,
    ObjectChanged,
    ObjectMissing,
    PrismError,
    StoreUnavailable,
)

_DENIED = ("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch")


def missing_bucket(bucket: str) -> MissingBucket:
    """There is no such bucket."""
    return MissingBucket(f"bucket {bucket} does not exist: create it or correct its name")


def missing_object(where: str) -> ObjectMissing:
    """There is no object under this key."""
    return ObjectMissing(f"{where} does not exist")


def changed_object(where: str) -> ObjectChanged:
    """The object has another ETag by now."""
    return ObjectChanged(f"{where} is no longer the object that was discovered")


def denied(where: str) -> AccessDenied:
    """The store knows the caller and refuses, or does not know the caller."""
    return AccessDenied(f"{where}: access denied; check the credentials and the policy of their owner")


def unclear(where: str, bucket: str, message: str) -> PrismError:
    """Whatever else a store says: by the codes of S3 in its message, or else something that may pass."""
    if "NoSuchBucket" in message:
        return missing_bucket(bucket)
    if any(code in message for code in _DENIED):
        return denied(where)
    first_line = message.strip().splitlines()[0][:300] if message.strip() else "no message"
    return StoreUnavailable(f"{where}: the object store did not answer as it should ({first_line})")
