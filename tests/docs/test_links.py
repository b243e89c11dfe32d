"""Links of a page lead to the same place in the tree and on the site."""

from __future__ import annotations

import pytest

from tools.site import links

TEXT = """\
# A `page` of its own: links

See [the code](../pump/log/writer.py), [another page](load.md#from-a-tidb), [here](#a-page), <https://x.example>,
[a site](https://x.example/a.md) and ![a picture](assets/way.svg).

```python
[not](../a/link.md)
```
"""


def test_links_are_those_outside_code_that_stay_in_the_tree() -> None:
    assert list(links.targets(TEXT)) == ["../pump/log/writer.py", "load.md#from-a-tidb", "#a-page"]


def test_files_of_the_tree_are_pages_of_the_site() -> None:
    changed = links.for_site("docs/page.md", TEXT)
    assert "[the code](source/pump/log/writer.py.md)" in changed
    assert "[another page](load.md#from-a-tidb)" in changed
    assert "[here](#a-page)" in changed
    assert "[not](../a/link.md)" in changed
    assert "![a picture](assets/way.svg)" in changed


def test_a_page_outside_docs_leads_back_into_it() -> None:
    text = "[load](docs/load.md), [the law](LICENSE)"
    assert links.for_site("README.md", text) == "[load](../load.md), [the law](LICENSE.md)"


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("load.md", ("docs/load.md", "")),
        ("../README.md#top", ("README.md", "top")),
        ("#here", ("docs/page.md", "here")),
    ],
)
def test_where_a_link_leads(target: str, place: tuple[str, str]) -> None:
    assert links.resolve("docs/page.md", target) == place


def test_anchors_of_headings() -> None:
    assert links.headings(TEXT) == ["a-page-of-its-own-links"]
    assert links.headings("## `a_b`, [c](d.md) - (E)\n") == ["a_b-c-e"]
