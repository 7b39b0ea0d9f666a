"""S3 through boto3, for keys that are no paths, and for listings that contain such keys.

The Rust client treats keys as paths. It refuses empty, `.` and `..` parts and control characters; in a listing it
refuses the whole page. It drops a slash at either end. S3 accepts any text as a key. boto3 is slower, so only such keys
come here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.utils import parse_timestamp

from prism_assets.domain.errors import PrismError, SettingsError
from prism_assets.objectstore.config import ObjectInfo, StoreConfig
from prism_assets.objectstore.parts import Part
from prism_assets.objectstore.store_errors import changed_object, denied, missing_bucket, missing_object, place, unclear
from prism_assets.transactions import refuse_inside_transaction

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_SHORTEST_READ = 5.0
_LONGEST_PAUSE = 20.0
"""Pause between two tries in boto3's standard mode: up to 1, 2, 4 … seconds, and never longer than this."""
_MOST_TRIES = 7
_BROKEN_ANSWERS = 3
_BROKEN = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)


class S3Keys:
    """Objects of any S3 bucket under any key. The first call opens the connection."""

    def __init__(self, config: StoreConfig) -> None:
        settings = Config(
            region_name=config.region,
            connect_timeout=5,
            # Limits silence, also in the middle of an answer.
            read_timeout=min(config.silence_seconds, max(_SHORTEST_READ, 2 * config.retry_seconds)),
            retries={"mode": "standard", "total_max_attempts": _tries_within(config.retry_seconds)},
            s3={"addressing_style": "virtual" if config.endpoint is None else "path"},
        )
        try:
            # boto3's shared session remembers credentials and is not thread-safe.
            session = botocore.session.Session()
            session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_read_time)
            boto_session = boto3.Session(botocore_session=session)
            # Always given, as for the Rust client. Otherwise the environment could set another address.
            address = config.endpoint or f"https://s3.{config.region}.amazonaws.com"
            self._client: S3Client = boto_session.client("s3", endpoint_url=address, config=settings)
        except (BotoCoreError, ValueError) as error:
            raise SettingsError(f"S3 cannot be used as the environment and the settings say: {error}") from error

    def list(self, bucket: str, prefix: str, *, after: str | None, page: int) -> Iterator[ObjectInfo]:
        """Lists the objects below a prefix in key order, only keys above `after`, a page at a time.

        boto3 requests encoded keys and decodes them, because XML cannot carry control characters.
        """
        place: dict[str, Any] = {"StartAfter": after} if after else {}
        while True:
            with _translated(bucket, prefix):
                answer = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=page, **place)
            for item in answer.get("Contents", []):
                yield ObjectInfo(item["Key"], item["Size"], item.get("ETag"), item["LastModified"])
            if not answer.get("IsTruncated"):
                return
            place = {"ContinuationToken": answer["NextContinuationToken"]}  # servers refuse the token beside StartAfter

    def list_folders(self, bucket: str, prefix: str, *, most: int) -> Sequence[str]:
        """Returns the folder names just below a prefix, out of the first `most` folders and objects there."""
        with _translated(bucket, prefix):
            answer = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=most)
        found = [item["Prefix"] for item in answer.get("CommonPrefixes", [])]
        return [path.removeprefix(prefix).rstrip("/") for path in found]

    def read_part(self, bucket: str, key: str, start: int, stop: int, etag: str | None) -> Part:
        """Reads the bytes [start, stop), or fewer at the object's end. See `Parts`.

        boto3 retries while no answer arrives. An answer that breaks off is requested again here.
        """
        guard: dict[str, Any] = {"IfMatch": etag} if etag else {}
        if start:  # an empty object has no valid range
            guard["Range"] = f"bytes={start}-{stop - 1}"
        with _translated(bucket, key):
            left = _BROKEN_ANSWERS
            while True:
                answer = self._client.get_object(Bucket=bucket, Key=key, **guard)
                try:
                    return _read_answer(answer, stop - start)
                except _BROKEN:
                    left -= 1
                    if not left:
                        raise

    def head(self, bucket: str, key: str) -> ObjectInfo:
        """Returns one object's entry as a listing would."""
        with _translated(bucket, key):
            answer = self._client.head_object(Bucket=bucket, Key=key)
            return ObjectInfo(key, answer["ContentLength"], answer.get("ETag"), answer["LastModified"])

    def delete(self, bucket: str, key: str) -> None:
        """Deletes an object. A missing object is no error."""
        with _translated(bucket, key):
            self._client.delete_object(Bucket=bucket, Key=key)


def _read_answer(answer: GetObjectOutputTypeDef, most: int) -> Part:
    length = answer["ContentLength"]
    whole = answer.get("ContentRange", "").rpartition("/")[2] or length
    with closing(answer["Body"]) as stream:
        body = stream.read(most)
    if len(body) < min(most, length):
        raise IncompleteReadError(actual_bytes=len(body), expected_bytes=min(most, length))
    return Part(body, answer.get("ETag"), int(whole))


def _read_time(value: Any) -> datetime:
    """Parses times in the format of listings. botocore would try every known format and spend most of a listing with
    it.
    """
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        found: datetime = parse_timestamp(value)
        return found


def _tries_within(seconds: float) -> int:
    """Returns how many tries fit, with pauses at their longest, into `seconds` of pauses."""
    tries, pause = 1, 1.0
    while tries < _MOST_TRIES and seconds >= pause:
        seconds -= pause
        tries, pause = tries + 1, min(_LONGEST_PAUSE, 2 * pause)
    return tries


@contextmanager
def _translated(bucket: str, key: str) -> Iterator[None]:
    where = place(bucket, key)
    refuse_inside_transaction(where)
    try:
        yield
    except ClientError as error:
        raise _named(error, bucket, where) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise denied(where) from error
    except ParamValidationError as error:  # any text is a valid key, so the bucket name is wrong
        raise missing_bucket(bucket) from error
    except (BotoCoreError, OSError) as error:
        raise unclear(where, bucket, str(error)) from error


def _named(error: ClientError, bucket: str, where: str) -> PrismError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchBucket":
        return missing_bucket(bucket)
    if status == 404:
        return missing_object(where)
    if status == 412:
        return changed_object(where)
    if status in (401, 403):
        return denied(where, code)
    return unclear(where, bucket, f"{code}: {error.response.get('Error', {}).get('Message', '')}")
