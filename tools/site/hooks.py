"""Hooks that mkdocs calls while it builds the site: links, and pages of the files that pages link to.

Tests  tests/docs/test_links.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

from tools.site import links

ROOT: Final = Path(__file__).resolve().parents[2]
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".proto": "protobuf", ".yml": "yaml", ".service": "ini"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file of the tree that a page links to."""
    pages = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    named: set[str] = set()
    while pages:
        page, text = pages.pop()
        for target in links.targets(text):
            path, _ = links.resolve(page, target)
            if path.startswith("docs/") or path in named or not (ROOT / path).is_file():
                continue  # what is not there is left to mkdocs, which says so
            named.add(path)
            content = _page(path)
            files.append(File.generated(config, links.on_site(path), content=content))
            if path.endswith(".md"):
                pages.append((path, content))
    return files


def _page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n`````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n`````\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Write links as the site has them."""
    uri = page.file.src_uri
    outside = uri.startswith(f"{links.SOURCE}/")
    path = uri.removeprefix(f"{links.SOURCE}/") if outside else f"docs/{uri}"
    if outside and not (ROOT / path).is_file():
        return markdown  # a file that is no page: its text is not ours to change
    return links.for_site(path, markdown)
