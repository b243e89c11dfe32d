"""The words of the architecture page: few, in order, and each in the module that explains it."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source import ROOT
from tests.docs.pages import Page

WORDS_MAX = 25
WORDS = re.findall(
    r"^\| ([a-z ]+) \| [^|]+ \| `([^`]+\.py)` \|$",
    Page("docs/architecture.md").text.split("\n## Words\n")[1],
    re.MULTILINE,
)


def test_they_are_few_and_in_order() -> None:
    assert 10 < len(WORDS) <= WORDS_MAX
    assert sorted(WORDS) == WORDS


@pytest.mark.parametrize(("word", "module"), WORDS, ids=[word for word, _ in WORDS])
def test_a_word_is_in_its_module(word: str, module: str) -> None:
    text = (ROOT / module).read_text(encoding="utf-8")
    pattern = rf"\b{word.replace(' ', '[ _]')}s?\b"
    assert re.search(pattern, text, re.IGNORECASE), f"{module} says nothing of it"
