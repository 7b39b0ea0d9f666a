"""Costs of erasures for `scripts/bench tables`: rewriting one object, and searching many objects with one hit."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.harness import System, race, report
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.domain.work.write import WriteTask
from prism_assets.kernels.convert import convert_object
from prism_assets.kernels.expressions.predicate import make_erasure_rule
from prism_assets.kernels.write import write_object
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.erase.search import as_read, is_excluded

_LEAST = 0.9
_USERS = (5, 1_000_005)
_ERASED = f"user_id IN ({', '.join(map(str, _USERS))})"


class _CountingStores(Stores):
    """Counts the bytes read of each object."""

    def __init__(self, config: StoreConfig) -> None:
        super().__init__(config)
        self.read: dict[str, int] = {}

    def get_chunks(
        self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None, chunk: int | None = None
    ) -> Iterator[bytes]:
        for part in super().get_chunks(bucket, key, etag=etag, length=length, chunk=chunk):
            self.read[key] = self.read.get(key, 0) + len(part)
            yield part

    def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, etag: str | None = None
    ) -> tuple[bytes, str | None]:
        body, found = super().read_range(bucket, key, start, stop, etag=etag)
        self.read[key] = self.read.get(key, 0) + len(body)
        return body, found


class Erasures:
    """A lake with a small object for each body of lines, and the merge of all of them."""

    def __init__(self, root: Path, table: TableDefinition, bodies: Sequence[bytes], received: datetime) -> None:
        self._stores = _CountingStores(StoreConfig(local_root=str(root), object_tags=False))
        self._root, self._table, self._lake = root, table, Lake("lake", "", self._stores.config)
        self._metrics = (table.column("time").column_id, table.column("user_id").column_id)
        self._rule: ErasureRule = replace(make_erasure_rule(table, _ERASED), erasure_id=1)
        self._small = [file for number, body in enumerate(bodies, 1) for file in self._convert(number, body, received)]
        self._whole = self._merged("all.parquet")
        self.rows = self._whole.row_count

    def _convert(self, number: int, body: bytes, received: datetime) -> Sequence[DataFile]:
        (self._root / "staging" / f"users{number}.gz").write_bytes(gzip.compress(body, 1))
        task = ConvertTask(
            staging_object_id=number,
            bucket="staging",
            key=f"users{number}.gz",
            etag=None,
            content_length=0,
            received=received,
            stream_name="pages",
            delayed_dates=frozenset(),
            table_id=1,
            definition_version=1,
            metric_columns=self._metrics,
        )
        result = convert_object(task, self._table, self._stores, self._lake)
        assert result.failure is None, result.failure
        return result.objects

    def _merged(self, key: str) -> DataFile:
        task = WriteTask(
            number=0,
            inputs=tuple(map(as_read, self._small)),
            output_key=key,
            table_id=1,
            definition_version=1,
            metric_columns=self._metrics,
        )
        result = write_object(task, self._table, self._stores, self._lake)
        assert result.written is not None, result.failure
        return result.written

    def _rewritten(self, file: DataFile, key: str) -> DataFile | None:
        task = WriteTask(
            number=0,
            inputs=(as_read(file),),
            erasures=(self._rule,),
            table_id=1,
            definition_version=1,
            output_key=key,
            metric_columns=self._metrics,
        )
        result = write_object(task, self._table, self._stores, self._lake)
        assert result.failure is None, result.failure
        return result.written

    def race(self, rounds: int) -> bool:
        """Races a rewrite of the merged object against a merge of the same rows. Returns whether the rewrite is fast
        enough.
        """

        def left(key: str) -> Mapping[str, object]:
            rows = pq.read_table(pa.BufferReader(self._stores.get("lake", key)))
            rows = rows.filter(pc.invert(pc.is_in(rows.column("user_id"), pa.array(_USERS))))
            return {"rows": rows.num_rows, "values": hashlib.sha256(repr(rows.to_pydict()).encode()).hexdigest()[:16]}

        def rewrite(number: int) -> None:
            written = self._rewritten(self._whole, f"rewritten{number}.parquet")
            assert written is not None
            assert written.row_count == self.rows - len(_USERS)

        def merge(number: int) -> None:
            self._merged(f"merged{number}.parquet")

        systems = [
            System("rewrite", lambda _: None, rewrite, lambda number: left(f"rewritten{number}.parquet")),
            System("merge of the same rows", lambda _: None, merge, lambda number: left(f"merged{number}.parquet")),
        ]
        hits = self.hits()
        print(hits)
        note = (
            f"A merged object of {self.rows:,} rows is written again without {len(_USERS)} of them, found by reading a "
            f"column; the merge reads {len(self._small)} small objects."
        )
        return report(
            "Erasures: one object", race(systems, rounds), {"merge of the same rows": _LEAST}, [note, "", hits]
        )

    def hits(self) -> str:
        """Erases from small objects with disjoint users. Returns how much of them is read and written."""
        searched = [item for item in self._small if not is_excluded(self._rule, item)]
        self._stores.read.clear()
        written = [done for item in searched if (done := self._rewritten(item, f"hit/{item.key}"))]
        read = sum(size for key, size in self._stores.read.items() if not key.startswith("hit/"))
        size = sum(item.content_length for item in self._small)
        assert len(written) == len(_USERS)
        return (
            f"Of {len(self._small)} small objects, {size:,} bytes, {len(searched)} were read, {read:,} bytes, and "
            f"{len(written)} written again, {sum(item.content_length for item in written):,} bytes."
        )
