"""Rewritten objects of open days lie under their live keys, too, as readers list these days.

Whoever writes such a copy has the lease of repairs of its day: a repair that has looked at what lies there before would
put it back. The copy is written over what the writer has looked at and nothing else, behind a look at what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from prism_assets.domain.errors import LeaseLost, ObjectMissing
from prism_assets.domain.files import SmallObject
from prism_assets.domain.keys import TableKeys
from prism_assets.failpoints import failpoint
from prism_assets.stages.context import StageContext


def live_key(keys: TableKeys, item: SmallObject) -> str:
    """Where readers of an open day find an object, however often it was rewritten."""
    return keys.small_object(item.date, item.staging_object_id, delayed=False, generation=item.generation)


def put_copy(
    context: StageContext, keys: TableKeys, item: SmallObject, is_wanted: Callable[[Connection], bool]
) -> bool:
    """Writes a rewritten object under its live key, where another object lies, or none; False if it is not wanted.

    That is asked in a transaction behind a look at what lies there: who writes later replaces what is written here.
    Raises LeaseLost if somebody has written meanwhile. A death before the write leaves what was there, and one behind
    it the copy: the next call ends either.
    """
    key = live_key(keys, item)
    body = context.stores.get(item.bucket, item.key, length=item.content_length)
    try:
        there = context.stores.head(item.bucket, key).etag
    except ObjectMissing:
        there = None
    failpoint("copy.before_put")
    with context.database.begin() as connection:
        if not is_wanted(connection):
            return False
    if there is None:
        written = context.stores.put_new(item.bucket, key, body, kind="live")
    else:
        written = context.stores.replace(item.bucket, key, body, etag=there, kind="live")
    if not written:
        raise LeaseLost(f"{key} was written by another worker meanwhile: it is looked at again by the next call")
    failpoint("copy.after_put")
    return True
