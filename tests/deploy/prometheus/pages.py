"""The pages for operators who were paged: alerts and troubleshooting, and the commands in them."""

from __future__ import annotations

import re
from typing import Final

from tests.deploy.prometheus.rules import ROOT

ALERTS: Final = (ROOT / "docs" / "alerts.md").read_text()
MONITORING: Final = (ROOT / "docs" / "monitoring.md").read_text()
TROUBLES: Final = (ROOT / "docs" / "troubleshooting.md").read_text()


def shell_lines(page: str) -> list[str]:
    """Each line of its blocks of shell commands."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]
