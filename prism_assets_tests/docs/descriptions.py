"""Makes the links of the distributions' descriptions absolute, in a copy of the sources that `scripts/wheels` builds.

`python prism_assets_tests/docs/descriptions.py FOLDER URL`, with an empty URL where there is none. The descriptions are
the README files. An index shows them without the files beside them, so a relative link leads nowhere there. Uses the
standard library only.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

DESCRIPTIONS = ("README.md", "prism_local/README.md", "prism_kernel/README.md")
_GITHUB = re.compile(r"(?:https://github\.com/|git@github\.com:)([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(r"!\[([^]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)\s]+)\)")
_HTML_PICTURE = re.compile(r"^<picture>.*?</picture>\n*", re.DOTALL | re.MULTILINE)
_HTML_ADDRESS = re.compile(r'\b(src|srcset)="([^"]+)"')


def base_url(given: str, version: str) -> str | None:
    """Returns the address of the files of a version, from such an address or from a GitHub remote."""
    if remote := _GITHUB.fullmatch(given):
        return f"https://github.com/{remote[1]}/blob/v{version}"
    return given.rstrip("/") if given.startswith(("https://", "http://")) else None


def with_absolute_links(text: str, url: str | None, folder: str = "") -> str:
    """Returns a description whose relative links lead below `url`, except in code. Without a URL they become text.

    `folder` is the folder of the file inside the repository. Pictures come from GitHub's address of raw files.
    """
    parts, end = [], 0
    for code in _FENCED.finditer(text):
        parts += [_linked(text[end : code.start()], url, folder), code[0]]
        end = code.end()
    return "".join([*parts, _linked(text[end:], url, folder)])


def _linked(text: str, url: str | None, folder: str) -> str:
    if url is None:
        text = _HTML_PICTURE.sub("", text)
        text = _PICTURE.sub(lambda found: found[0] if _is_absolute(found[2]) else "", text)
        return _LINK.sub(lambda found: found[0] if _is_absolute(found[2]) else found[1], text)
    raw = url.replace("/blob/", "/raw/", 1)
    text = _HTML_ADDRESS.sub(lambda found: f'{found[1]}="{_absolute(found[2], raw, folder)}"', text)
    text = _PICTURE.sub(lambda found: f"![{found[1]}]({_absolute(found[2], raw, folder)})", text)
    return _LINK.sub(lambda found: f"[{found[1]}]({_absolute(found[2], url, folder)})", text)


def _is_absolute(address: str) -> bool:
    return "://" in address or address.startswith("#")


def _absolute(address: str, url: str, folder: str) -> str:
    return address if _is_absolute(address) else f"{url}/{posixpath.normpath(posixpath.join(folder, address))}"


def main() -> int:
    """Rewrites the descriptions below a folder."""
    folder, given = Path(sys.argv[1]), sys.argv[2]
    (version,) = re.findall(r'^version = "([^"]+)"$', (folder / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    url = base_url(given, version)
    if given and url is None:
        print(f"wheels: {given} is no address of files: links of the descriptions become text", file=sys.stderr)
    for name in DESCRIPTIONS:
        file = folder / name
        text = with_absolute_links(file.read_text(encoding="utf-8"), url, posixpath.dirname(name))
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
