"""How readers are told which objects a day consists of: in a manifest, or by a folder with a list of symlinks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Protocol

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files import DataFile
from prism_assets.domain.keys import TableKeys, is_symlink_folder
from prism_assets.domain.partitions import Publication
from prism_assets.objectstore.manifests import read_manifest, write_manifest
from prism_assets.publishers.base import NamedObject


class FileLists(Protocol):
    """The lists of one kind of readers. Each has a key that is never used for another one."""

    def key(self, keys: TableKeys, day: date, publication: Publication) -> str:
        """Where the list of a publication lies."""
        ...

    def location(self, key: str) -> str:
        """What a catalog says for a list under a key, so that readers find it."""
        ...

    def key_at(self, location: str) -> str | None:
        """The key of the list that readers of a location find; None for a folder of objects."""
        ...

    def write(self, files: Sequence[DataFile]) -> bytes:
        """Renders a list of files in the order given; refuses one that names an object twice."""
        ...

    def read(self, body: bytes) -> list[NamedObject]:
        """What a list names; InvariantBroken if it is none."""
        ...


class Manifests:
    """JSON with exact lengths, for Redshift Spectrum: the location is the manifest."""

    def key(self, keys: TableKeys, day: date, publication: Publication) -> str:
        """Beside the merged objects."""
        return keys.manifest(day, publication.version, publication.published_object_id, publication.revision)

    def location(self, key: str) -> str:
        """The manifest."""
        return key

    def key_at(self, location: str) -> str | None:
        """The location, where it is no folder."""
        return None if location.endswith("/") else location

    def write(self, files: Sequence[DataFile]) -> bytes:
        """The manifest with its lengths."""
        return write_manifest(files)

    def read(self, body: bytes) -> list[NamedObject]:
        """Every entry."""
        return [NamedObject(entry.url, entry.content_length) for entry in read_manifest(body)]


class Symlinks:
    """One address a line, for SymlinkTextInputFormat in Athena, Trino and Hive: the location is its folder."""

    def key(self, keys: TableKeys, day: date, publication: Publication) -> str:
        """In a folder of its own: all that readers find there is a list to them."""
        return keys.symlinks(day, publication.version, publication.published_object_id, publication.revision)

    def location(self, key: str) -> str:
        """The folder of the list."""
        return key.removesuffix(_LIST)

    def key_at(self, location: str) -> str | None:
        """The one list of a folder of symlinks."""
        return location + _LIST if is_symlink_folder(location) else None

    def write(self, files: Sequence[DataFile]) -> bytes:
        """A line for each object."""
        urls = [file.url for file in files]
        if len(set(urls)) != len(urls):
            raise InvariantBroken("a list of symlinks would name an object twice")
        return "".join(f"{url}\n" for url in urls).encode()

    def read(self, body: bytes) -> list[NamedObject]:
        """Every line."""
        try:
            return [NamedObject(url, None) for url in body.decode().splitlines()]
        except UnicodeDecodeError as error:
            raise InvariantBroken(f"this is not a list of symlinks: {error!r}") from error


_LIST = "objects.txt"
MANIFESTS = Manifests()
SYMLINKS = Symlinks()
