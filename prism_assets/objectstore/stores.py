"""Reading and writing objects. One `Stores` serves all buckets; its errors are those of the error tree."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import obstore
from obstore import exceptions
from obstore.store import LocalStore, S3Store

from prism_assets.domain.errors import (
    AccessDenied,
    MissingBucket,
    ObjectChanged,
    ObjectMissing,
    StoreUnavailable,
)

_PAGE = 1_000


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """How to reach the object store. Holds no secret: credentials come from the environment of each process.

    With `local_root` set, buckets are folders below it; otherwise they are S3 buckets.
    """

    endpoint: str | None = None
    region: str = "us-east-1"
    local_root: str | None = None
    object_tags: bool = True
    retry_seconds: float = 30.0

    def to_json(self) -> str:
        """One line of JSON that travels to tasks."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StoreConfig:
        """Reads what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class ObjectInfo:
    """What a listing says about one object; the length is in bytes."""

    key: str
    content_length: int
    etag: str | None
    last_modified: datetime


class Stores:
    """Objects of any bucket by bucket name and key. Safe to share between threads."""

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._stores: dict[str, S3Store | LocalStore] = {}

    @property
    def lists_in_order(self) -> bool:
        """Whether listings are in the order of the keys, as those of S3 are; folders on disk have none."""
        return self.config.local_root is None

    def get(self, bucket: str, key: str, *, etag: str | None = None) -> bytes:
        """Reads a whole object. With `etag`, ObjectChanged if the object is another one by now."""
        with _translated(bucket, key):
            result = obstore.get(self._store(bucket), key, options={"if_match": etag} if etag else {})
            return result.bytes().to_bytes()

    def get_chunks(self, bucket: str, key: str, *, etag: str | None = None, chunk: int = 8 << 20) -> Iterator[bytes]:
        """Reads an object piece by piece, each of at least `chunk` bytes but the last."""
        with _translated(bucket, key):
            result = obstore.get(self._store(bucket), key, options={"if_match": etag} if etag else {})
            for piece in result.stream(min_chunk_size=chunk):
                yield bytes(piece)

    def put(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> None:
        """Writes an object as a whole. `kind` (live, delayed, merged) becomes the tag PrismObjectType, where on."""
        tags = {"PrismObjectType": kind} if kind and self.config.object_tags else None
        with _translated(bucket, key):
            obstore.put(self._store(bucket), key, body, tags=tags)

    def put_new(self, bucket: str, key: str, body: bytes | memoryview, *, kind: str | None = None) -> bool:
        """Writes an object only if there is none under its key; False if there is one already."""
        tags = {"PrismObjectType": kind} if kind and self.config.object_tags else None
        with _translated(bucket, key):
            try:
                obstore.put(self._store(bucket), key, body, tags=tags, mode="create", use_multipart=False)
            except exceptions.AlreadyExistsError:
                return False
        return True

    def read_version(self, bucket: str, key: str) -> tuple[bytes, str | None]:
        """Reads a whole object, and the etag by which `replace` knows it again."""
        with _translated(bucket, key):
            result = obstore.get(self._store(bucket), key)
            return result.bytes().to_bytes(), result.meta["e_tag"]

    def replace(
        self, bucket: str, key: str, body: bytes | memoryview, *, etag: str | None, kind: str | None = None
    ) -> bool:
        """Writes an object over the one with this etag; False if there is another one by now, or none.

        Folders on disk, and S3 servers without conditional writes, are asked for the etag just before an ordinary
        write: there, and only there, what another writer puts between the two is still written over.
        """
        tags = {"PrismObjectType": kind} if kind and self.config.object_tags else None
        store = self._store(bucket)
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
            obstore.put(store, key, body, tags=tags)
        return True

    def length(self, bucket: str, key: str) -> int:
        """The length of an object in bytes; ObjectMissing if there is none."""
        with _translated(bucket, key):
            return obstore.head(self._store(bucket), key)["size"]

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Deletes objects; those that are not there are no error."""
        for start in range(0, len(keys), _PAGE):
            with _translated(bucket, keys[start]):
                try:
                    obstore.delete(self._store(bucket), list(keys[start : start + _PAGE]))
                except FileNotFoundError:
                    self._delete_one_by_one(bucket, keys[start : start + _PAGE])

    def list(self, bucket: str, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Lists the objects below a prefix that ends with `/` (or is empty), those with keys above `after`."""
        with _translated(bucket, prefix):
            for page in obstore.list(self._store(bucket), prefix or None, offset=after, chunk_size=_PAGE):
                for meta in page:
                    yield ObjectInfo(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])

    def check_bucket(self, bucket: str) -> None:
        """Raises MissingBucket, AccessDenied or StoreUnavailable if the bucket cannot be listed."""
        next(iter(self.list(bucket, "prism-assets-bucket-check/")), None)

    def _delete_one_by_one(self, bucket: str, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                obstore.delete(self._store(bucket), key)
            except FileNotFoundError:
                continue

    def _store(self, bucket: str) -> S3Store | LocalStore:
        with self._lock:
            if bucket not in self._stores:
                self._stores[bucket] = self._open(bucket)
            return self._stores[bucket]

    def _open(self, bucket: str) -> S3Store | LocalStore:
        config = self.config
        if config.local_root is not None:
            root = Path(config.local_root) / bucket
            if not root.is_dir():
                raise MissingBucket(f"bucket {bucket} does not exist: create the folder {bucket} in the local root")
            return LocalStore(prefix=root)
        return S3Store(
            bucket,
            endpoint=config.endpoint,
            region=config.region,
            virtual_hosted_style_request=config.endpoint is None,
            # TLS guards the bytes on their way; hashing them for the signature too costs both ends half the upload.
            unsigned_payload=True,
            client_options={"allow_http": True, "timeout": "60s", "connect_timeout": "5s"},
            retry_config={"max_retries": 6, "retry_timeout": timedelta(seconds=config.retry_seconds)},
        )


@contextmanager
def _translated(bucket: str, key: str) -> Iterator[None]:
    where = f"s3://{bucket}/{key}"
    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise MissingBucket(f"bucket {bucket} does not exist: create it or correct its name") from error
        raise ObjectMissing(f"{where} does not exist") from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise AccessDenied(f"{where}: access denied; check the credentials and the policy of their owner") from error
    except exceptions.PreconditionError as error:
        raise ObjectChanged(f"{where} is no longer the object that was discovered") from error
    except (exceptions.BaseError, OSError) as error:
        raise _unclear(where, bucket, str(error)) from error


def _is_unknown_there(error: Exception) -> bool:
    """Whether a server says that it knows no conditional writes; it has written nothing then."""
    return "NotImplemented" in str(error) or "501 Not Implemented" in str(error)


def _unclear(where: str, bucket: str, message: str) -> Exception:
    if "NoSuchBucket" in message:
        return MissingBucket(f"bucket {bucket} does not exist: create it or correct its name")
    if "AccessDenied" in message or "InvalidAccessKeyId" in message or "SignatureDoesNotMatch" in message:
        return AccessDenied(f"{where}: access denied; check the credentials and the policy of their owner")
    first_line = message.strip().splitlines()[0][:300] if message.strip() else "no message"
    return StoreUnavailable(f"{where}: the object store did not answer as it should ({first_line})")
