"""Streams from which nothing comes, for status, doctor, checks and the end of a run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.silent_streams import SilentStream, silent_streams
from prism_assets.metadata.stream_scans import load_listed


def find_silent(connection: Connection, table_ids: Collection[int], now: datetime) -> list[SilentStream]:
    """The silent streams of some tables, from PostgreSQL alone; stopped and discarded ones are meant to be silent."""
    return silent_streams(load_listed(connection, table_ids), now)
