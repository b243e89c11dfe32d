"""Config reference: writes the pages and the short files that are made from the daemons' options.

    python -m tools.config_reference    after a change of an option; the test says when it was forgotten

Tests  tests/deploy/test_config_reference.py
"""

from __future__ import annotations

from pathlib import Path

import pump.config
from drainer.config import options
from tidb_binlog.config import reference
from tidb_binlog.observe import show

ROOT = Path(__file__).parents[1]


def files() -> dict[str, str]:
    """Texts by path below the root of the project."""
    texts = {}
    for program, cls, env_prefix in (
        ("pump", pump.config.PumpConfig, pump.config.ENV_PREFIX),
        ("drainer", options.DrainerConfig, options.ENV_PREFIX),
    ):
        texts[f"docs/config-{program}.md"] = reference.page(cls, program, env_prefix)
        texts[f"deploy/{program}.toml"] = reference.starter(cls, program, env_prefix)
    return texts


def main() -> None:
    """Write what differs."""
    for name, text in files().items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            show.print_lines(name)


if __name__ == "__main__":
    main()
