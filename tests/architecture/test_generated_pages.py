"""Files that are made from the code are what the code makes of them now."""

from __future__ import annotations

import pytest

from tools import alert_rules, config_reference, pictures

MADE = {
    **dict.fromkeys(config_reference.files(), config_reference),
    **dict.fromkeys(alert_rules.files(), alert_rules),
    **dict.fromkeys(pictures.files(), pictures),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_committed_is_what_would_be_made_now(name: str) -> None:
    made = MADE[name].files()[name]
    assert (config_reference.ROOT / name).read_text() == made, f"run: python -m {MADE[name].__name__}"
