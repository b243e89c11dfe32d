"""Reads a page as a browser does: its elements, their attributes, and the text that is seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

EMPTY = ("meta", "br", "img", "link", "input")


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[Element] = field(default_factory=list)

    def all(self) -> list[Element]:
        return [self, *(deep for one in self.inside for deep in one.all())]

    def named(self, name: str) -> list[Element]:
        return [one for one in self.all() if one.name == name]

    def part(self, identity: str) -> Element:
        return next(one for one in self.all() if one.attributes.get("id") == identity)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.top = Element("", {})
        self._open = [self.top]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].inside.append(made)
        if tag not in EMPTY:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].name == tag, f"{tag} ends {self._open[-1].name}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for one in self._open:
            one.text += data

    def done(self) -> Element:
        self.close()
        assert len(self._open) == 1, "an element is not ended"
        return self.top


def read(html: str) -> Element:
    """Every element is ended where it must be."""
    reader = _Reader()
    reader.feed(html)
    return reader.done()
