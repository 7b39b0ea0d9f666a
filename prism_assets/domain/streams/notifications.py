"""Reads S3's event notifications: bare, wrapped by SNS, or from EventBridge.

Reading never raises. Unreadable parts become error values beside the readable ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote_plus

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_ETAG = re.compile(r'"?(?P<etag>[!#-~]{1,128})"?')
_SEQUENCER = re.compile(r"[0-9A-Fa-f]{1,64}")
_MOST_BYTES = 2**63 - 1
_WRAPPINGS = 3
"""Two topics in a row, and the event inside."""


@dataclass(frozen=True, kw_only=True)
class CreatedObject:
    """A written object. Length in bytes, key decoded, ETag quoted as in listings."""

    bucket: str
    key: str
    etag: str | None
    content_length: int | None
    """None if the store sends events without sizes. A HEAD request returns the size."""
    event_time: datetime | None
    sequencer: str | None
    """Orders events of the same key only: the greater one is later."""


@dataclass(frozen=True, kw_only=True)
class Notification:
    """One message: written objects, the number of irrelevant events, and errors."""

    created: tuple[CreatedObject, ...] = ()
    ignored: int = 0
    errors: tuple[str, ...] = ()


class _UnreadableEvent(Exception):
    """Why an event cannot be read. Stays inside this module."""


def parse_notification(body: str) -> Notification:
    """Reads a message body. Removals, other events and test events count as ignored."""
    try:
        document = _unwrap(body)
    except _UnreadableEvent as error:
        return Notification(errors=(str(error),))
    if document.get("Event") == "s3:TestEvent":
        return Notification(ignored=1)
    records = [document] if "detail-type" in document else document.get("Records")
    if not isinstance(records, list):
        return Notification(errors=("it has neither Records nor a detail-type, so it is no event of S3",))
    return _read_all(records)


def latest(created: Iterable[CreatedObject]) -> list[CreatedObject]:
    """Keeps one event per key, the latest by sequencer. Events arrive doubled and in any order."""
    found: dict[tuple[str, str], CreatedObject] = {}
    for item in created:
        before = found.get((item.bucket, item.key))
        if before is None or _order(before) <= _order(item):
            found[item.bucket, item.key] = item
    return list(found.values())


def _order(item: CreatedObject) -> int:
    """Compares sequencers as numbers, because they are hexadecimal with different lengths."""
    return int(item.sequencer, 16) if item.sequencer else -1


def _unwrap(body: str) -> dict[str, Any]:
    text = body
    for _ in range(_WRAPPINGS):
        document = _decode(text)
        if document.get("Type") != "Notification" or not isinstance(document.get("Message"), str):
            return document
        text = document["Message"]
    raise _UnreadableEvent("it is wrapped more often than SNS wraps events")


def _decode(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _UnreadableEvent("it is not JSON") from None
    if not isinstance(document, dict):
        raise _UnreadableEvent("it is not a JSON object")
    return document


def _read_all(records: list[Any]) -> Notification:
    created: list[CreatedObject] = []
    errors: list[str] = []
    ignored = 0
    for number, record in enumerate(records, start=1):
        try:
            item = _read(record)
        except _UnreadableEvent as error:
            errors.append(f"event {number} of {len(records)}: {error}")
            continue
        if item is None:
            ignored += 1
        else:
            created.append(item)
    return Notification(created=tuple(created), ignored=ignored, errors=tuple(errors))


def _read(record: Any) -> CreatedObject | None:
    """Reads one event. None for events other than a new object."""
    if not isinstance(record, dict):
        raise _UnreadableEvent("it is not a JSON object")
    if "detail-type" in record:
        return _read_bridged(record) if record["detail-type"] == "Object Created" else None
    name = record.get("eventName")
    if not isinstance(name, str):
        raise _UnreadableEvent("it has no eventName")
    return _read_record(record) if name.removeprefix("s3:").startswith("ObjectCreated:") else None


def _read_record(record: Mapping[str, Any]) -> CreatedObject:
    s3 = _part(record, "s3")
    bucket, item = _part(s3, "bucket"), _part(s3, "object")
    try:
        key = unquote_plus(_text(item, "key"), errors="strict")
    except UnicodeDecodeError:
        raise _UnreadableEvent("its key is not UTF-8") from None
    return _created(bucket, item, key, etag=item.get("eTag"), at=record.get("eventTime"))


def _read_bridged(event: Mapping[str, Any]) -> CreatedObject:
    """Reads an EventBridge event. Its keys are not encoded, so a plus sign is a plus sign."""
    detail = _part(event, "detail")
    bucket, item = _part(detail, "bucket"), _part(detail, "object")
    key = _text(item, "key")
    return _created(bucket, item, key, etag=item.get("etag"), at=event.get("time"))


def _created(bucket: Mapping[str, Any], item: Mapping[str, Any], key: str, *, etag: Any, at: Any) -> CreatedObject:
    name, length, sequencer = _text(bucket, "name"), item.get("size"), item.get("sequencer")
    if not _BUCKET.fullmatch(name):
        raise _UnreadableEvent("its bucket name is invalid")
    is_length = isinstance(length, int) and not isinstance(length, bool) and 0 <= length <= _MOST_BYTES
    if length is not None and not is_length:
        raise _UnreadableEvent("it has no size in bytes")
    return CreatedObject(
        bucket=name,
        key=key,
        etag=_etag(etag),
        content_length=length,
        event_time=_time(at),
        sequencer=sequencer if isinstance(sequencer, str) and _SEQUENCER.fullmatch(sequencer) else None,
    )


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    if not isinstance(part, dict):
        raise _UnreadableEvent(f"it has no {name}")
    return part


def _text(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name)
    if not isinstance(value, str) or not value:
        raise _UnreadableEvent(f"it has no {name}")
    return value


def _etag(value: Any) -> str | None:
    """Returns the ETag quoted as in listings, or None; reads then omit the check."""
    match = _ETAG.fullmatch(value) if isinstance(value, str) else None
    return f'"{match["etag"]}"' if match else None


def _time(value: Any) -> datetime | None:
    """Returns an instant in UTC, or None if it is unreadable, so that the object is not lost."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
