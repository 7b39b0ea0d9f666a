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
"""The change of a join table came so late that its records may have settled."""
NULL_IN_REQUIRED = "null_in_required"
UNDEFINED_FIELD = "undefined_field"
"""The line has a field without a column, and the table's contract freezes fields."""
MISFIT = "misfit"
"""A value does not fit its column, and the table's contract quarantines such lines."""
KEEP_FAILED = "keep_failed"
"""The expression of `keep` failed for the line."""
REJECT_FAILED = "reject_failed"
"""An expression of `reject` failed for the line."""
TRUNCATED = "truncated"
BAD_CRC = "bad_crc"
TRAILING_GARBAGE = "trailing_garbage"
RATIO_EXCEEDED = "ratio_exceeded"
ZERO_PADDING = "zero_padding"
"""Applies to an object, not to a line."""
BAD_MESSAGE = "bad_message"
"""A protobuf message that does not match its type."""
BAD_FRAMING = "bad_framing"
"""The rest of an object of messages, after a length that is invalid or exceeds the object."""
NO_RECORDS = "no_records"
"""A document, or an element in it, without an array of records in the place that `records` names."""
BAD_TEXT = "bad_text"
"""A line of text that its stream's format does not fit: an open quote, or no match of the regular expression."""
BAD_HEADER = "bad_header"
"""A line of an object whose first line does not name the fields. Such an object has the reason without a line, too."""
TOMBSTONE = "tombstone"
"""A message of Kafka without a value, where the stream rejects these."""
OTHER_DAY = "other_day"
"""The line was no row, and would now be a row of another day than the rebuilt one."""
CHANGED_AFTER_DISCOVERY = "changed_after_discovery"
"""From objects converted by earlier versions."""

UNREAD = frozenset({BAD_UTF8, BAD_JSON, NOT_OBJECT, TOO_DEEP, NO_RECORDS, BAD_TEXT, BAD_HEADER})
"""Reasons for lines with unknown content."""
OF_OBJECTS = frozenset({TRUNCATED, BAD_CRC, RATIO_EXCEEDED, TRAILING_GARBAGE})
"""Reasons of objects, for each of their pieces."""
ALL = UNREAD | {
    LINE_TOO_LONG, DUPLICATE_KEY, MISSING_TIME, BAD_TIME, TOO_OLD, TOO_NEW, TOO_LATE, NULL_IN_REQUIRED, UNDEFINED_FIELD,
    MISFIT, KEEP_FAILED, REJECT_FAILED, TRUNCATED, BAD_CRC, TRAILING_GARBAGE, RATIO_EXCEEDED, ZERO_PADDING,
    BAD_MESSAGE, BAD_FRAMING, TOMBSTONE, OTHER_DAY, CHANGED_AFTER_DISCOVERY,
}  # fmt: skip
"""A table's own rejections need other reasons."""
