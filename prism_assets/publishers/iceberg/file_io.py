"""Reads and writes Iceberg metadata files through the lake's own store, with its errors."""

from __future__ import annotations

import io
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from prism_assets.domain.errors import ObjectMissing, WrongUse
from prism_assets.objectstore.stores import Stores

STORES = "prism.stores"


class StoresFileIO(FileIO):
    """Reads and writes `s3://bucket/key`. Never overwrites an object.

    PyIceberg creates it with a catalog's properties; the stores are one of them.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__({})
        self._stores: Stores = properties[STORES]

    def new_input(self, location: str) -> InputFile:
        """Returns an object. Opening it reads the whole object."""
        return _StoredFile(self._stores, location)

    def new_output(self, location: str) -> OutputFile:
        """Returns an object. Closing it writes the whole object."""
        return _NewFile(self._stores, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raises WrongUse. After a commit PyIceberg deletes apparent leftovers, and one of them may be the table's
        head.
        """
        raise WrongUse(f"{location} is not deleted here: garbage collection alone deletes objects")


class _StoredFile(InputFile):
    def __init__(self, stores: Stores, location: str) -> None:
        super().__init__(location)
        self._stores = stores
        self._bucket, self._key = place_of(location)

    def __len__(self) -> int:
        return self._stores.length(self._bucket, self._key)

    def exists(self) -> bool:
        try:
            return len(self) >= 0
        except ObjectMissing:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._stores.get(self._bucket, self._key))


class _NewFile(OutputFile):
    def __init__(self, stores: Stores, location: str) -> None:
        super().__init__(location)
        self._stores = stores
        self._stream: _Upload | None = None

    def __len__(self) -> int:
        if self._stream is None:
            return len(self.to_input_file())
        return self._stream.content_length

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _StoredFile(self._stores, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Ignores `overwrite`, because names are never reused."""
        self._stream = _Upload(self._stores, self.location)
        return self._stream


class _Upload(io.BytesIO):
    """Collects one file and writes it on close. Writes nothing if the body of the `with` statement raised."""

    def __init__(self, stores: Stores, location: str) -> None:
        super().__init__()
        self._stores = stores
        self._location = location
        self.content_length = 0

    def close(self) -> None:
        if not self.closed:
            body = self.getvalue()
            super().close()
            bucket, key = place_of(self._location)
            if not self._stores.put_new(bucket, key, body):
                raise FileExistsError(f"{self._location} exists")
            self.content_length = len(body)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        if error is not None:
            super().close()
            return
        self.close()


def place_of(location: str) -> tuple[str, str]:
    """Returns bucket and key of an address. Addresses written by strangers may begin with `s3a` or `s3n`."""
    parts = urlsplit(location)
    if parts.scheme not in ("s3", "s3a", "s3n"):
        raise WrongUse(f"{location} does not lie in S3")
    return parts.netloc, unquote(location.partition("://")[2].partition("/")[2])
