"""Lists of the objects of a day: a manifest, or a folder with a list of symlinks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Protocol

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.keys import TableKeys, is_symlink_folder
from prism_assets.objectstore.manifests import read_manifest, write_manifest
from prism_assets.publishers.base import NamedObject


class FileLists(Protocol):
    """Object lists for one kind of readers. A key is never reused for another list."""

    def key(self, keys: TableKeys, day: date, publication: Publication) -> str:
        """Returns the key of a publication's list."""
        ...

    def location(self, key: str) -> str:
        """Returns the location for the catalog that leads readers to a list."""
        ...

    def key_at(self, location: str) -> str | None:
        """Returns the key of the list at a location, or None for a folder of objects."""
        ...

    def write(self, files: Sequence[DataFile]) -> bytes:
        """Renders files in the order given. Raises InvariantBroken if an object occurs twice."""
        ...

    def read(self, body: bytes) -> list[NamedObject]:
        """Reads a list. Raises InvariantBroken if the body is no list."""
        ...


class Manifests:
    """JSON with exact lengths for Redshift Spectrum. The location is the manifest."""

    def key(self, keys: TableKeys, day: date, publication: Publication) -> str:
        """Returns a key beside the merged objects."""
        return keys.manifest(day, publication.version, publication.published_object_id, publication.revision)

    def location(self, key: str) -> str:
        """Returns the manifest."""
        return key

    def key_at(self, location: str) -> str | None:
        """Returns the location unless it is a folder."""
        return None if location.endswith("/") else location

    def write(self, files: Sequence[DataFile]) -> bytes:
        """Renders the manifest with lengths."""
        return write_manifest(files)

    def read(self, body: bytes) -> list[NamedObject]:
        """Returns every entry."""
        return [NamedObject(entry.url, entry.content_length) for entry in read_manifest(body)]


class Symlinks:
    """One URL a line, for SymlinkTextInputFormat in Athena, Trino and Hive. The location is the list's folder."""

    def key(self, keys: TableKeys, day: date, publication: Publication) -> str:
        """Returns a key in a folder of its own, because readers treat every object in the folder as a list."""
        return keys.symlinks(day, publication.version, publication.published_object_id, publication.revision)

    def location(self, key: str) -> str:
        """Returns the folder of the list."""
        return key.removesuffix(_LIST)

    def key_at(self, location: str) -> str | None:
        """Returns the one list in a folder of symlinks."""
        return location + _LIST if is_symlink_folder(location) else None

    def write(self, files: Sequence[DataFile]) -> bytes:
        """Renders a line for each object."""
        urls = [file.url for file in files]
        if len(set(urls)) != len(urls):
            raise InvariantBroken("a list of symlinks would name an object twice")
        return "".join(f"{url}\n" for url in urls).encode()

    def read(self, body: bytes) -> list[NamedObject]:
        """Returns every line."""
        try:
            return [NamedObject(url, None) for url in body.decode().splitlines()]
        except UnicodeDecodeError as error:
            raise InvariantBroken(f"this is not a list of symlinks: {error!r}") from error


_LIST = "objects.txt"
MANIFESTS = Manifests()
SYMLINKS = Symlinks()
