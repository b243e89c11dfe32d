"""Verdict: the box at the top of a page: what needs the operator, the worst first; else what goes on.

Tests  tests/common/page/test_status_page.py, tests/common/page/test_cluster_page.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidb_binlog.page.markup import Markup, element
from tidb_binlog.status.troubles import ERROR, Trouble

SHOWN_MAX: Final = 20


def verdict(
    title: object, troubles: Sequence[Trouble], *, is_well: bool = True, named: bool = False
) -> Markup:
    """`title`: what goes on; `is_well`: no trouble would be good news; `named`: each says whose it is."""
    worst_first = sorted(troubles, key=lambda trouble: trouble.severity != ERROR)
    if not worst_first:
        return element("div", title, class_=f"verdict {'good' if is_well else 'part'}", id="verdict")
    level = "bad" if worst_first[0].severity == ERROR else "part"
    said = [element("span", *words(trouble, named=named)) for trouble in worst_first[:SHOWN_MAX]]
    others = element("ul", *(element("li", one_said) for one_said in said[1:])) if said[1:] else ""
    return element(
        "div", element("div", said[0], element("p", title)), others, class_=f"verdict {level}", id="verdict"
    )


def words(trouble: Trouble, *, named: bool = False) -> Iterator[object]:
    """A sentence, and what to do about it. `named`: it begins with the node."""
    sentence = f"{trouble.node} {trouble.text}" if named else trouble.text
    yield f"{sentence[:1].upper()}{sentence[1:]}"
    if trouble.hint:
        yield " ("
        # Every second part of a hint stands between backticks: it is a command.
        for number, part in enumerate(trouble.hint.split("`")):
            yield element("code", part) if number % 2 else part
        yield ")"
