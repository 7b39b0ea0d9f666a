"""Reads and writes objects. One `Stores` serves all buckets and raises errors of the error tree."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions
from obstore.store import LocalStore, S3Store

from prism_assets.domain.errors import (
    MissingBucket,
    ObjectMissing,
    PrismError,
    SettingsError,
    TerminalError,
    WrongUse,
)
from prism_assets.objectstore.config import ObjectInfo, StoreConfig
from prism_assets.objectstore.credentials import profile_credentials
from prism_assets.objectstore.parts import PART, Part, Parts
from prism_assets.objectstore.store_errors import (
    PROBE,
    answer_of,
    changed_object,
    denied,
    missing_bucket,
    missing_object,
    place,
    unauthenticated,
    unclear,
)
from prism_assets.transactions import refuse_inside_transaction

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig

    from prism_assets.objectstore.s3 import S3Keys

_PAGE = 1_000
_LONGEST_READ = 600
"""Seconds for one part, however slowly it arrives. Silence ends a read much earlier."""
_LEAST_WRITE, _SLOWEST_WRITE = 60, 256 << 10
"""Seconds granted to any write, and the lowest rate in bytes a second at which a long write must finish in time."""
_MOST_WRITTEN = 5 << 30
_WRITES_AT_ONCE = 4
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_path(key: str) -> bool:
    """Whether the Rust client and S3 agree on this key: no empty or dotted parts, no control characters.

    Folders on disk hold no other keys, and prism writes no others.
    """
    return not any(part in ("", ".", "..") for part in key.split("/")) and not _CONTROL.search(key)


class Stores:
    """Objects of any bucket by bucket name and key. Safe to share between threads."""

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._stores: dict[tuple[str, str], S3Store | LocalStore] = {}
        self._s3: S3Keys | None = None

    @property
    def lists_in_order(self) -> bool:
        """Whether listings come in key order. S3's do; folders on disk have no order."""
        return self.config.local_root is None

    def get(self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None) -> bytes:
        """Reads a whole object. With `etag`, raises ObjectChanged if the object was replaced.

        `length` is the expected length. With it, no answer is abandoned before its end.
        """
        return b"".join(self.get_chunks(bucket, key, etag=etag, length=length))

    def get_chunks(
        self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None, chunk: int | None = None
    ) -> Iterator[bytes]:
        """Reads an object of any length in pieces of about `chunk` bytes. The caller may read slowly."""
        yield from self._parts(bucket, key, etag, length, chunk or PART)

    def put(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> None:
        """Writes a whole object. `kind` becomes the tag PrismObjectType if tags are on.

        Kinds are live, delayed and merged; objects of join tables are visible, hidden or pending. Long bodies go up in
        parts, a few at a time, and the timeout applies to each part.
        """
        _check_path(bucket, key)
        tags = {"PrismObjectType": kind} if kind and self.config.object_tags else None
        with _translated(bucket, key):
            obstore.put(self._store(bucket), key, body, tags=tags, max_concurrency=_WRITES_AT_ONCE)

    def put_new(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> bool:
        """Writes an object unless its key exists; then returns False.

        The write is one request for any length, so its timeout grows with the length.
        """
        _check_path(bucket, key)
        tags = {"PrismObjectType": kind} if kind and self.config.object_tags else None
        store = self._store(bucket, key, len(body))
        with _translated(bucket, key):
            try:
                obstore.put(store, key, body, tags=tags, mode="create", use_multipart=False)
            except exceptions.AlreadyExistsError:
                return False
        return True

    def read_range(
        self, bucket: str, key: str, start: int, stop: int, *, etag: str | None = None
    ) -> tuple[bytes, str | None]:
        """Reads the bytes [start, stop) of an object, and its ETag. With `etag`, raises ObjectChanged if the object was
        replaced.
        """
        part = self._read_part(bucket, key, start, stop, etag, ranged=True)
        return part.body, part.etag

    def read_version(self, bucket: str, key: str) -> tuple[bytes, str | None]:
        """Reads a whole object, and its ETag for `replace`."""
        parts = self._parts(bucket, key, None, None, PART)
        return b"".join(parts), parts.etag

    def replace(
        self, bucket: str, key: str, body: bytes | memoryview, *, etag: str | None, kind: str | None = None
    ) -> bool:
        """Overwrites the object with this ETag. Returns False if another object, or none, is there.

        On disk, and on S3 servers without conditional writes, reads the ETag and then writes without a condition. Only
        there, a concurrent write between the two requests is overwritten.
        """
        tags = {"PrismObjectType": kind} if kind and self.config.object_tags else None
        store = self._store(bucket, key, len(body))
        with _translated(bucket, key):
            try:
                if self.config.local_root is None and etag:
                    obstore.put(store, key, body, tags=tags, mode={"e_tag": etag}, use_multipart=False)
                    return True
            except (exceptions.PreconditionError, exceptions.AlreadyExistsError, FileNotFoundError):
                return False
            except exceptions.BaseError as error:
                if not _is_unknown_there(error):
                    raise
            try:
                if obstore.head(store, key)["e_tag"] != etag:
                    return False
            except FileNotFoundError:
                return False
            obstore.put(store, key, body, tags=tags, max_concurrency=_WRITES_AT_ONCE)
        return True

    def head(self, bucket: str, key: str) -> ObjectInfo:
        """Returns one object's entry as a listing would. Raises ObjectMissing if there is none."""
        if not is_path(key):
            return self._any_key(bucket, key).head(bucket, key)
        with _translated(bucket, key):
            meta = obstore.head(self._store(bucket), key)
            return ObjectInfo(key, meta["size"], meta["e_tag"], meta["last_modified"])

    def length(self, bucket: str, key: str) -> int:
        """Returns the length of an object in bytes. Raises ObjectMissing if there is none."""
        return self.head(bucket, key).content_length

    def serves(self, bucket: str, key: str, *, if_missing: bool) -> bool:
        """Whether the store hands out an object. Returns `if_missing` if the object does not exist."""
        try:
            self._read_first_byte(bucket, key)
        except ObjectMissing:
            return if_missing
        except PrismError:
            return False
        return True

    def _read_first_byte(self, bucket: str, key: str) -> None:
        if not is_path(key):
            self._any_key(bucket, key).read_part(bucket, key, 0, 1, None)
        elif self.length(bucket, key):
            with _translated(bucket, key):
                obstore.get_range(self._store(bucket), key, start=0, length=1)

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Deletes objects. Missing objects are no error."""
        paths = [key for key in keys if is_path(key)]
        for start in range(0, len(paths), _PAGE):
            with _translated(bucket, paths[start]):
                try:
                    obstore.delete(self._store(bucket), paths[start : start + _PAGE])
                except FileNotFoundError:
                    self._delete_one_by_one(bucket, paths[start : start + _PAGE])
        if self.config.local_root is None:
            for key in set(keys).difference(paths):
                self._boto3().delete(bucket, key)

    def list(self, bucket: str, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Lists the objects below a prefix, only keys above `after`. The prefix ends with `/` or is empty.

        On S3, each page is requested after the previous one is used up.
        """
        if self.config.local_root is None:
            yield from self._boto3().list(bucket, prefix, after=after, page=_PAGE)
            return
        with _translated(bucket, prefix):
            for page in obstore.list(self._store(bucket), prefix or None, offset=after, chunk_size=_PAGE):
                for meta in page:
                    yield ObjectInfo(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])

    def list_folders(self, bucket: str, prefix: str, *, most: int) -> Sequence[str]:
        """Returns the names of the folders just below a prefix, without slashes. The prefix ends with `/` or is empty.

        On S3 this is one request, limited to `most` folders and objects. It is no complete listing.
        """
        if self.config.local_root is None:
            return self._boto3().list_folders(bucket, prefix, most=most)
        with _translated(bucket, prefix):
            found = obstore.list_with_delimiter(self._store(bucket), prefix or None)
        return [path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"][:most]]

    def check_bucket(self, bucket: str) -> None:
        """Raises MissingBucket, AccessDenied or StoreUnavailable if the bucket cannot be listed."""
        next(iter(self.list(bucket, PROBE)), None)

    def _delete_one_by_one(self, bucket: str, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                obstore.delete(self._store(bucket), key)
            except FileNotFoundError:
                continue

    def _any_key(self, bucket: str, key: str) -> S3Keys:
        """Returns the client for keys that are no paths. Raises ObjectMissing on disk, where no such key can exist."""
        if self.config.local_root is not None:
            raise missing_object(f"s3://{bucket}/{key}")
        return self._boto3()

    def _boto3(self) -> S3Keys:
        """Imports boto3 on first use. Workers rarely need it, and reading commands start faster without it."""
        try:
            from prism_assets.objectstore.s3 import S3Keys
        except ImportError as error:
            raise SettingsError("keys that are no paths are read through boto3: install it where tasks run") from error
        with self._lock:
            if self._s3 is None:
                self._s3 = S3Keys(self.config)
            return self._s3

    def _parts(self, bucket: str, key: str, etag: str | None, length: int | None, size: int) -> Parts:
        if not is_path(key):
            return Parts(partial(self._any_key(bucket, key).read_part, bucket, key), etag=etag, size=size)
        ranged = length is not None and length > size
        return Parts(partial(self._read_part, bucket, key, ranged=ranged), etag=etag, size=size)

    def _read_part(self, bucket: str, key: str, start: int, stop: int, etag: str | None, *, ranged: bool) -> Part:
        """Reads the bytes [start, stop), or fewer at the object's end.

        The first part is read without a range, because empty objects have no valid range. The rest of the answer is
        dropped.
        """
        options: GetOptions = {"if_match": etag} if etag else {}
        if ranged or start:
            options["range"] = (start, stop)
        with _translated(bucket, key):
            result = obstore.get(self._reading(bucket), key, options=options)
            length, found = result.meta["size"], result.meta["e_tag"]
            if "range" in options or length <= stop:
                body = result.bytes().to_bytes()
            else:
                body = bytes(next(iter(result.stream(min_chunk_size=stop))))
        if len(body) < min(stop, length) - start:
            raise unclear(place(bucket, key), bucket, f"its body has {len(body)} bytes of [{start}, {stop})")
        return Part(body, found, length)

    def _reading(self, bucket: str) -> S3Store | LocalStore:
        """Returns a client that waits as long as bytes arrive. Only silence times out, for a part of any length."""
        silence = timedelta(seconds=self.config.silence_seconds)
        return self._client(bucket, {"timeout": timedelta(seconds=_LONGEST_READ), "read_timeout": silence})

    def _store(self, bucket: str, key: str = "", length: int = 0) -> S3Store | LocalStore:
        """Returns a client whose timeout suits a write of `length` bytes. Other requests use the shortest timeout."""
        if length > _MOST_WRITTEN and self.config.local_root is None:
            raise TerminalError(f"s3://{bucket}/{key}: S3 takes 5 GiB in one write, and this has {length} bytes")
        seconds = _LEAST_WRITE
        while seconds * _SLOWEST_WRITE < length:
            seconds *= 2
        return self._client(bucket, {"timeout": timedelta(seconds=seconds)})

    def _client(self, bucket: str, timeouts: ClientConfig) -> S3Store | LocalStore:
        name = (bucket, "" if self.config.local_root is not None else repr(timeouts))
        root = self._folder(bucket)
        if root is not None and not root.is_dir():  # checked every time, because the folder may have been removed
            raise MissingBucket(f"bucket {bucket} does not exist: create the folder {bucket} in the local root")
        with self._lock:
            if name not in self._stores:
                self._stores[name] = self._open(bucket, timeouts)
            return self._stores[name]

    def _folder(self, bucket: str) -> Path | None:
        """Returns the folder of a bucket below the local root, or None on S3."""
        return None if self.config.local_root is None else Path(self.config.local_root) / bucket

    def _open(self, bucket: str, timeouts: ClientConfig) -> S3Store | LocalStore:
        config, root = self.config, self._folder(bucket)
        if root is not None:
            return LocalStore(prefix=root)
        return S3Store(
            bucket,
            # Always given: the client would read an address from the environment, and a worker's environment may
            # differ.
            endpoint=config.endpoint or f"https://{bucket}.s3.{config.region}.amazonaws.com",
            region=config.region,
            virtual_hosted_style_request=config.endpoint is None,
            # TLS protects the bytes in transit. Hashing them for the signature costs both ends half the upload.
            unsigned_payload=True,
            client_options={"allow_http": True, "connect_timeout": "5s", **timeouts},
            retry_config={"max_retries": 6, "retry_timeout": timedelta(seconds=config.retry_seconds)},
            credential_provider=profile_credentials(),
        )


@lru_cache(maxsize=4)
def stores_of(config: StoreConfig) -> Stores:
    """Returns this process's stores, shared over ticks and tasks. A new boto3 client and its connections take long to
    make.
    """
    return Stores(config)


def _check_path(bucket: str, key: str) -> None:
    """Raises WrongUse for a key that is no path: the Rust client would write it under another key."""
    if not is_path(key):
        raise WrongUse(f"s3://{bucket}/{key}: objects are written under keys without empty and dotted parts")


@contextmanager
def _translated(bucket: str, key: str) -> Iterator[None]:
    where = place(bucket, key)
    refuse_inside_transaction(where)
    try:
        yield
    except FileNotFoundError as error:
        _, code = answer_of(error)
        raise (missing_bucket(bucket) if code == "NoSuchBucket" else missing_object(where)) from error
    except exceptions.PermissionDeniedError as error:
        raise denied(where, answer_of(error)[1]) from error
    except exceptions.UnauthenticatedError as error:
        raise unauthenticated(where, error) from error
    except exceptions.PreconditionError as error:
        raise changed_object(where) from error
    except (exceptions.BaseError, OSError) as error:
        raise unclear(where, bucket, str(error)) from error


def _is_unknown_there(error: Exception) -> bool:
    """Whether the server does not support conditional writes. Such a server has written nothing."""
    status, code = answer_of(error)
    return status == 501 or code == "NotImplemented"
