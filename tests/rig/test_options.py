"""Command line of the rig."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.options import RigOptions, parse


def test_options() -> None:
    assert parse([]) == RigOptions()
    chosen = parse(["--replay", "x", "--kill", "--json", "--seed", "4"])
    assert chosen == RigOptions(replay=Path("x"), kill=True, json=True, seed=4)
    chosen = parse(["--seconds", "120", "--chaos", "--keep", "--rate", "0", "--sessions", "2"])
    assert chosen == RigOptions(seconds=120, chaos=True, keep=True, rate=0, sessions=2)
    assert parse(["--spark", "8MiB", "--chaos"]) == RigOptions(spark="8MiB", chaos=True)
    assert parse(["--load", "--chaos"]) == RigOptions(load=True, chaos=True)
    assert parse(["--load", "--kills", "3"]) == RigOptions(load=True, kills=3)


@pytest.mark.parametrize(
    "argv",
    [
        *(["--kill"], ["--kills", "2"], ["--load", "--chaos", "--kills", "2"]),
        ["--spark", "0", "--load"],
        *(["--load", "--replay", "x"], ["--load", "--kills", "-1"]),
    ],
)
def test_wrong_options_end_with_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(argv)
    assert stopped.value.code == 2
    assert "usage: python -m tests.rig" in capsys.readouterr().err
