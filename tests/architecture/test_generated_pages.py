"""Files that are made from the code are what the code makes of them now."""

from __future__ import annotations

import pytest

from tools import config_reference


@pytest.mark.parametrize("name", config_reference.files())
def test_what_is_committed_is_what_would_be_made_now(name: str) -> None:
    made = config_reference.files()[name]
    assert (config_reference.ROOT / name).read_text() == made, "run: python -m tools.config_reference"
