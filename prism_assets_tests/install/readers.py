"""Counts the rows of log.signups as readers do, with what is installed: run by the interpreter of an environment.

It prints one JSON object: rows by reader, and the folder of prism_assets.
"""

import json

import duckdb

import prism_assets
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.settings import load_settings


def main() -> None:
    settings = load_settings()
    shown = LakeReader(settings).table("log.signups").partitions
    addresses = [entry.url for partition in shown for entry in partition.objects]
    connection = duckdb.connect()
    if settings.local_root:
        addresses = [address.replace("s3://", f"{settings.local_root}/") for address in addresses]
        by_manifest = connection.read_parquet(addresses)
    else:
        by_manifest = connection.from_arrow(_through_pyarrow(addresses, str(settings.s3_endpoint)))
    with IcebergReader(settings) as iceberg:
        in_iceberg = iceberg.rows("log.signups")
    found = {
        "manifest": sorted(by_manifest.project("user_id").fetchall()),
        "iceberg": sorted([row["user_id"]] for row in in_iceberg.select(["user_id"]).to_pylist()),
        "code": prism_assets.__path__[0],
    }
    print(json.dumps(found))


def _through_pyarrow(addresses: list[str], endpoint: str) -> object:
    import pyarrow.dataset
    import pyarrow.fs

    store = pyarrow.fs.S3FileSystem(endpoint_override=endpoint)
    paths = [address.removeprefix("s3://") for address in addresses]
    return pyarrow.dataset.dataset(paths, filesystem=store, format="parquet").to_table(columns=["user_id"])


if __name__ == "__main__":
    main()
