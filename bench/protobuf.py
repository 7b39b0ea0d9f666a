"""Protobuf: rows a second from protobuf messages, against rows a second from equivalent JSON lines.

The kernel converts both in one thread of this process, from and to a folder. All columns must be equal, value by value,
before a time counts.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from bench.conversion import stored
from bench.harness import System, race, report
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.kernels.convert import convert_object
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

_START = datetime(2026, 3, 1, tzinfo=timezone.utc)
_LEAST = 0.5
_FIELDS = {
    "event_time": FieldDescriptorProto.TYPE_INT64,
    "user_id": FieldDescriptorProto.TYPE_INT64,
    "path": FieldDescriptorProto.TYPE_STRING,
    "method": FieldDescriptorProto.TYPE_STRING,
    "status": FieldDescriptorProto.TYPE_INT32,
    "bytes_sent": FieldDescriptorProto.TYPE_UINT64,
    "seconds": FieldDescriptorProto.TYPE_DOUBLE,
    "agent": FieldDescriptorProto.TYPE_STRING,
    "referer": FieldDescriptorProto.TYPE_STRING,
    "host": FieldDescriptorProto.TYPE_STRING,
    "cached": FieldDescriptorProto.TYPE_BOOL,
    "session": FieldDescriptorProto.TYPE_STRING,
}
_TABLE = """
schema: bench
table: pages
streams: [{{name: pages, url: "s3://staging/{format}/"{more}}}]
columns:
  - {{name: time, type: timestamp, source: event_time, time_unit: milliseconds}}
  - {{name: user_id, type: bigint}}
  - {{name: path, type: string, length: 2000}}
  - {{name: method, type: string, length: 10}}
  - {{name: status, type: integer}}
  - {{name: bytes_sent, type: bigint}}
  - {{name: seconds, type: double}}
  - {{name: agent, type: string, length: 500}}
  - {{name: referer, type: string, length: 2000}}
  - {{name: host, type: string, length: 100}}
  - {{name: cached, type: boolean}}
  - {{name: session, type: string, length: 64}}
"""


def _descriptor_set() -> bytes:
    fields = [
        FieldDescriptorProto(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
        for number, (name, kind) in enumerate(_FIELDS.items(), 1)
    ]
    file = FileDescriptorProto(name="page.proto", package="bench", syntax="proto3")
    file.message_type.append(DescriptorProto(name="Page", field=fields))
    content: bytes = FileDescriptorSet(file=[file]).SerializeToString()
    return content


def _table(form: str, more: str, content: bytes) -> TableDefinition:
    table = parse_table_file(_TABLE.format(format=form, more=more), "bench.yaml", lambda _name: content)
    return replace(stored(table), accept_from="object")


def _row(draw: random.Random) -> dict[str, Any]:
    time = _START + timedelta(milliseconds=draw.randrange(86_400_000))
    return {
        "event_time": int(time.timestamp() * 1000),
        "user_id": draw.randrange(1 << 40),
        "path": f"/section{draw.randrange(40)}/page/{draw.randrange(100_000)}",
        "method": draw.choice(["GET", "POST"]),
        "status": draw.choice([200, 200, 304, 404]),
        "bytes_sent": draw.randrange(1 << 20),
        "seconds": round(draw.random(), 4),
        "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
        "referer": f"https://www.example.com/search?q={draw.randrange(10_000)}",
        "host": f"web-{draw.randrange(20)}.example.com",
        "cached": draw.random() < 0.3,
        "session": f"{draw.getrandbits(128):032x}",
    }


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _messages(rows: list[dict[str, Any]], content: bytes) -> bytes:
    pool = DescriptorPool()
    pool.Add(FileDescriptorSet.FromString(content).file[0])
    kind: Any = GetMessageClass(pool.FindMessageTypeByName("bench.Page"))
    encoded: list[bytes] = [kind(**row).SerializeToString() for row in rows]
    return b"".join(_varint(len(message)) + message for message in encoded)


class Conversions:
    """One format: every round converts all objects into its own lake."""

    def __init__(self, root: Path, form: str, table: TableDefinition, objects: list[Path]) -> None:
        self._stores = Stores(StoreConfig(local_root=str(root), object_tags=False))
        self._root, self._form, self._table, self._objects = root, form, table, objects
        self._lake = Lake("lake", "", self._stores.config)

    def prepare(self, _number: int) -> None:
        self._stores.delete("lake", [item.key for item in self._stores.list("lake", "")])

    def work(self, _number: int) -> None:
        for number, path in enumerate(self._objects, 1):
            task = ConvertTask(
                staging_object_id=number,
                bucket="staging",
                key=f"{self._form}/{path.name}",
                etag=None,
                content_length=path.stat().st_size,
                received=_START + timedelta(days=1),
                stream_name="pages",
                delayed_dates=frozenset(),
                table_id=1,
                definition_version=1,
            )
            result = convert_object(task, self._table, self._stores, self._lake)
            assert result.failure is None, result.failure
            assert not result.quarantined

    def outcome(self, _number: int) -> Mapping[str, object]:
        paths = sorted((self._root / "lake").rglob("*.parquet"))
        rows = pa.concat_tables(pq.ParquetFile(path).read() for path in paths)
        digest = hashlib.sha256()
        for name in rows.column_names:
            digest.update(repr(rows.column(name).to_pylist()).encode())
        return {"rows": rows.num_rows, "all columns": digest.hexdigest()[:16]}


def main() -> int:
    """Races both. Returns exit status 1 if protobuf makes less than half of JSON's rows a second."""
    parser = argparse.ArgumentParser(prog="scripts/bench protobuf", description=__doc__)
    parser.add_argument("--objects", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000, help="rows an object")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    content = _descriptor_set()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        forms = {"protobuf": ", format: {protobuf: {descriptor: page.desc, message: bench.Page}}", "json": ""}
        objects: dict[str, list[Path]] = {form: [] for form in forms}
        for form in forms:
            (root / "staging" / form).mkdir(parents=True)
        (root / "lake").mkdir()
        for number in range(options.objects):
            rows = [_row(random.Random(number * options.rows + place)) for place in range(options.rows)]
            bodies = {
                "protobuf": _messages(rows, content),
                "json": b"".join(json.dumps(row).encode() + b"\n" for row in rows),
            }
            for form, body in bodies.items():
                path = root / "staging" / form / f"{number}.gz"
                path.write_bytes(gzip.compress(body, 1))
                objects[form].append(path)
        pa.set_cpu_count(1)
        systems = []
        for form, more in forms.items():
            way = Conversions(root, form, _table(form, more, content), objects[form])
            systems.append(System(form, way.prepare, way.work, way.outcome))
        timings = race(systems, options.rounds)
    rows_in_all = options.objects * options.rows
    note = f"{rows_in_all:,} rows of {len(_FIELDS)} fields in {options.objects} gzip objects of either form."
    return 0 if report("Protobuf: rows a second", timings, {"json": _LEAST}, [note]) else 1


if __name__ == "__main__":
    sys.exit(main())
