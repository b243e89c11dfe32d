"""Links of the pages: where they lead in the tree, and what they are called on the site.

In    a page's path in the tree, its text
Out   the same text with links that the site can follow, and the files outside docs/ that it names
Why   pages are read in the tree, where `../pump/log/writer.py` is a file, and on the site, where it is a page
Tests tests/docs/test_links.py
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

DOCS: Final = "docs"
SOURCE: Final = "source"
"""Folder of the site with the files of the tree that pages link to."""
LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^()\s]+)\)")
FENCE: Final = re.compile(r"^(```+|~~~+)[^\n]*\n.*?^\1[ ]*$\n?", re.MULTILINE | re.DOTALL)


def targets(text: str) -> Iterator[str]:
    """Every link that leads to a file or heading of the tree, as it is written."""
    for link in LINK.finditer(FENCE.sub("", text)):
        if not re.match(r"[a-z+]+:", link["target"]):
            yield link["target"]


def resolve(page: str, target: str) -> tuple[str, str]:
    """Path in the tree and heading that a link on `page` leads to; the page itself for a heading alone."""
    path, _, heading = target.partition("#")
    if not path:
        return page, heading
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path)), heading


def on_site(path: str) -> str:
    """What a file of the tree is called below the site's root, as mkdocs counts: a page's .md."""
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    return f"{SOURCE}/{path}" if path.endswith(".md") else f"{SOURCE}/{path}.md"


def for_site(page: str, text: str) -> str:
    """The text of a page of the tree with links between pages of the site."""
    folder = posixpath.dirname(on_site(page))

    def changed(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z+]+:|#", target):
            return link[0]
        path, heading = resolve(page, target)
        led = posixpath.relpath(on_site(path), folder or ".")
        return f"[{link['text']}]({led}{'#' if heading else ''}{heading})"

    written, end = [], 0
    for fence in FENCE.finditer(text):
        written += [LINK.sub(changed, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*written, LINK.sub(changed, text[end:])])


def slug(heading: str) -> str:
    """The anchor of a heading, as mkdocs and the hosts of repositories make it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())


def headings(text: str) -> list[str]:
    """Anchors of a page's headings."""
    return [slug(title) for title in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", text), re.MULTILINE)]
