"""Reading and writing objects. One `Stores` serves all buckets; its errors are those of the error tree."""

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
from prism_assets.objectstore.parts import PART, Part, Parts
from prism_assets.objectstore.store_errors import (
    PROBE,
    answer_of,
    changed_object,
    denied,
    missing_bucket,
    missing_object,
    place,
    unclear,
)
from prism_assets.transactions import refuse_inside_transaction

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig

    from prism_assets.objectstore.s3 import S3Keys

_PAGE = 1_000
_LONGEST_READ = 600
"""Seconds of one part, however slowly it comes: it is given up long before, where nothing comes any more."""
_LEAST_WRITE, _SLOWEST_WRITE = 60, 256 << 10
"""Seconds that any write may take, and the bytes a second at which a long one still gets done."""
_MOST_WRITTEN = 5 << 30
_WRITES_AT_ONCE = 4
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_path(key: str) -> bool:
    """Tells whether a key is a path to the Rust client, and the same one to S3: without empty and dotted parts.

    Control characters are none of a path's. Folders on disk have no other keys; what we write has no other keys.
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
        """Whether listings are in the order of the keys, as those of S3 are; folders on disk have none."""
        return self.config.local_root is None

    def get(self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None) -> bytes:
        """Reads a whole object. With `etag`, ObjectChanged if the object is another one by now.

        `length` is what is known of it; it saves an answer that is not read to its end.
        """
        return b"".join(self.get_chunks(bucket, key, etag=etag, length=length))

    def get_chunks(
        self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None, chunk: int | None = None
    ) -> Iterator[bytes]:
        """Reads an object piece by piece, each of about `chunk` bytes, however long it is and its reader takes."""
        yield from self._parts(bucket, key, etag, length, chunk or PART)

    def put(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> None:
        """Writes an object as a whole. `kind` becomes the tag PrismObjectType, where tags are on.

        Kinds are live, delayed and merged, and of join tables visible, hidden and pending. What is long goes up in
        parts, a few at a time: each must be done within the timeout.
        """
        _check_path(bucket, key)
        tags = {"PrismObjectType": kind} if kind and self.config.object_tags else None
        with _translated(bucket, key):
            obstore.put(self._store(bucket), key, body, tags=tags, max_concurrency=_WRITES_AT_ONCE)

    def put_new(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> bool:
        """Writes an object only if there is none under its key; False if there is one already.

        That takes one request, however long the object is, which so has its time by its length.
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
        """Reads the bytes [start, stop) of an object, and its ETag. With `etag`, ObjectChanged if it is another one."""
        part = self._read_part(bucket, key, start, stop, etag, ranged=True)
        return part.body, part.etag

    def read_version(self, bucket: str, key: str) -> tuple[bytes, str | None]:
        """Reads a whole object, and the etag by which `replace` knows it again."""
        parts = self._parts(bucket, key, None, None, PART)
        return b"".join(parts), parts.etag

    def replace(
        self, bucket: str, key: str, body: bytes | memoryview, *, etag: str | None, kind: str | None = None
    ) -> bool:
        """Writes an object over the one with this etag; False if there is another one by now, or none.

        Folders on disk, and S3 servers without conditional writes, are asked for the etag just before an ordinary
        write: there, and only there, what another writer puts between the two is still written over.
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
        """What a listing would say about one object; ObjectMissing if there is none."""
        if not is_path(key):
            return self._any_key(bucket, key).head(bucket, key)
        with _translated(bucket, key):
            meta = obstore.head(self._store(bucket), key)
            return ObjectInfo(key, meta["size"], meta["e_tag"], meta["last_modified"])

    def length(self, bucket: str, key: str) -> int:
        """The length of an object in bytes; ObjectMissing if there is none."""
        return self.head(bucket, key).content_length

    def serves(self, bucket: str, key: str, *, if_missing: bool) -> bool:
        """Whether the store hands out an object; `if_missing` is the answer where it says that there is none."""
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
        """Deletes objects; those that are not there are no error."""
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
        """Lists the objects below a prefix that ends with `/` (or is empty), those with keys above `after`.

        S3 is asked a page at a time, when the page before is used up.
        """
        if self.config.local_root is None:
            yield from self._boto3().list(bucket, prefix, after=after, page=_PAGE)
            return
        with _translated(bucket, prefix):
            for page in obstore.list(self._store(bucket), prefix or None, offset=after, chunk_size=_PAGE):
                for meta in page:
                    yield ObjectInfo(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])

    def list_folders(self, bucket: str, prefix: str, *, most: int) -> Sequence[str]:
        """The names of the folders just below a prefix that ends with `/` (or is empty), without their slashes.

        One request to S3, which answers with `most` folders and objects: a look, and no listing of all.
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
        """What reads keys that are no paths; ObjectMissing where there can be none."""
        if self.config.local_root is not None:
            raise missing_object(f"s3://{bucket}/{key}")
        return self._boto3()

    def _boto3(self) -> S3Keys:
        """Imported when it is needed: workers hardly ever do, and reading commands start faster without."""
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
        """The bytes [start, stop), or fewer at the object's end. The first ones need no range, which empty objects have
        none of: without it the answer is dropped when there are enough.
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
        """Waits for as long as something comes: only silence times out, on the way of a part of any length."""
        silence = timedelta(seconds=self.config.silence_seconds)
        return self._client(bucket, {"timeout": timedelta(seconds=_LONGEST_READ), "read_timeout": silence})

    def _store(self, bucket: str, key: str = "", length: int = 0) -> S3Store | LocalStore:
        """Waits for as long as a request that writes so many bytes may take; others are done in the least time."""
        if length > _MOST_WRITTEN and self.config.local_root is None:
            raise TerminalError(f"s3://{bucket}/{key}: S3 takes 5 GiB in one write, and this has {length} bytes")
        seconds = _LEAST_WRITE
        while seconds * _SLOWEST_WRITE < length:
            seconds *= 2
        return self._client(bucket, {"timeout": timedelta(seconds=seconds)})

    def _client(self, bucket: str, timeouts: ClientConfig) -> S3Store | LocalStore:
        name = (bucket, "" if self.config.local_root is not None else repr(timeouts))
        root = self._folder(bucket)
        if root is not None and not root.is_dir():  # each time: it may be gone since
            raise MissingBucket(f"bucket {bucket} does not exist: create the folder {bucket} in the local root")
        with self._lock:
            if name not in self._stores:
                self._stores[name] = self._open(bucket, timeouts)
            return self._stores[name]

    def _folder(self, bucket: str) -> Path | None:
        """Of a bucket that is one, below the local root."""
        return None if self.config.local_root is None else Path(self.config.local_root) / bucket

    def _open(self, bucket: str, timeouts: ClientConfig) -> S3Store | LocalStore:
        config, root = self.config, self._folder(bucket)
        if root is not None:
            return LocalStore(prefix=root)
        return S3Store(
            bucket,
            # Always given: otherwise the client takes one from the environment, and a worker's may be another.
            endpoint=config.endpoint or f"https://{bucket}.s3.{config.region}.amazonaws.com",
            region=config.region,
            virtual_hosted_style_request=config.endpoint is None,
            # TLS guards the bytes on their way; hashing them for the signature too costs both ends half the upload.
            unsigned_payload=True,
            client_options={"allow_http": True, "connect_timeout": "5s", **timeouts},
            retry_config={"max_retries": 6, "retry_timeout": timedelta(seconds=config.retry_seconds)},
        )


@lru_cache(maxsize=4)
def stores_of(config: StoreConfig) -> Stores:
    """Those of this process, with their connections, over ticks and tasks: to make a client of boto3 takes long."""
    return Stores(config)


def _check_path(bucket: str, key: str) -> None:
    """The Rust client would write some of them under another key."""
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
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise denied(where, answer_of(error)[1]) from error
    except exceptions.PreconditionError as error:
        raise changed_object(where) from error
    except (exceptions.BaseError, OSError) as error:
        raise unclear(where, bucket, str(error)) from error


def _is_unknown_there(error: Exception) -> bool:
    """Whether a server says that it knows no conditional writes; it has written nothing then."""
    status, code = answer_of(error)
    return status == 501 or code == "NotImplemented"
