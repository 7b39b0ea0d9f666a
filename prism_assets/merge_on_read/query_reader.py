"""Reads all catalog tables, and join tables with all committed changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from prism_assets.domain.errors import AccessDenied, DatabaseUnavailable
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import arrow_dataset, schemas_of

if TYPE_CHECKING:
    from prism_assets.merge_on_read.reader import RecordsReader

PUBLISHED_HINT = "`prism query --published` shows the records as of the last fold and catalog run"


class QueryReader:
    """The reader of `prism query`. The catalog tells join tables from others, so PostgreSQL is asked only for join
    tables.

    `open_records` is called for the first join table.
    """

    def __init__(self, catalog: LakeReader, open_records: Callable[[], RecordsReader]) -> None:
        self._catalog = catalog
        self._open_records = open_records

    def dataset(self, name: str) -> ds.Dataset:
        """Returns all rows of `schema.table`, with `dt`."""
        if self._may_be_join_table(name):
            try:
                with self._open_records() as records:
                    if records.is_join_table(name):
                        return records.dataset(name)
            except DatabaseUnavailable as error:
                raise DatabaseUnavailable(f"{error}; {PUBLISHED_HINT}") from error
        return arrow_dataset(self._catalog, self._catalog.table(name))

    def schemas(self) -> Iterator[tuple[str, pa.Schema]]:
        """Yields the columns of each catalog table, with `dt`."""
        return schemas_of(self._catalog)

    def _may_be_join_table(self, name: str) -> bool:
        """Whether the table may be a join table. Callers without permission on its log in Glue read it as Glue shows
        it.
        """
        try:
            return self._catalog.has_log_of_changes(name)
        except AccessDenied:
            return False
