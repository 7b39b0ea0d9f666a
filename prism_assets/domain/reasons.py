"""Reasons of quarantined lines, except those of a table's own `reject`; docs/lines-to-rows.md explains each."""

from __future__ import annotations

BAD_UTF8 = "bad_utf8"
BAD_JSON = "bad_json"
NOT_OBJECT = "not_object"
TOO_DEEP = "too_deep"
LINE_TOO_LONG = "line_too_long"
DUPLICATE_KEY = "duplicate_key"
MISSING_TIME = "missing_time"
BAD_TIME = "bad_time"
TOO_OLD = "too_old"
TOO_NEW = "too_new"
TOO_LATE = "too_late"
"""The change of a join table came so late that records which it could change may have settled."""
NULL_IN_REQUIRED = "null_in_required"
UNDEFINED_FIELD = "undefined_field"
"""The line has a field that no column reads, and the contract of the table freezes its fields."""
MISFIT = "misfit"
"""A value does not fit its column, and the contract of the table sets such lines aside."""
KEEP_FAILED = "keep_failed"
"""The expression of `keep` could not be computed for the line."""
REJECT_FAILED = "reject_failed"
"""The same for an expression of `reject`."""
TRUNCATED = "truncated"
BAD_CRC = "bad_crc"
TRAILING_GARBAGE = "trailing_garbage"
RATIO_EXCEEDED = "ratio_exceeded"
ZERO_PADDING = "zero_padding"
"""Told of an object, and of no line."""
BAD_MESSAGE = "bad_message"
"""A message of protobuf that is none of its type."""
BAD_FRAMING = "bad_framing"
"""The rest of an object of messages, from a length on that is none, or that the object ends before."""
OTHER_DAY = "other_day"
"""The line was no row, and would be one of another day than the one that was rebuilt."""
CHANGED_AFTER_DISCOVERY = "changed_after_discovery"
"""Of objects that versions before converted."""

UNREAD = frozenset({BAD_UTF8, BAD_JSON, NOT_OBJECT, TOO_DEEP})
"""Those of lines that were not read: nobody knows what they hold."""
ALL = UNREAD | {
    LINE_TOO_LONG, DUPLICATE_KEY, MISSING_TIME, BAD_TIME, TOO_OLD, TOO_NEW, TOO_LATE, NULL_IN_REQUIRED, UNDEFINED_FIELD,
    MISFIT, KEEP_FAILED, REJECT_FAILED, TRUNCATED, BAD_CRC, TRAILING_GARBAGE, RATIO_EXCEEDED, ZERO_PADDING,
    BAD_MESSAGE, BAD_FRAMING, OTHER_DAY, CHANGED_AFTER_DISCOVERY,
}  # fmt: skip
"""A rejection of a table needs a reason of its own."""
