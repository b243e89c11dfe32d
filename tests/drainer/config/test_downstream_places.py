"""[syncer.to] host: one server as Go has it, or several that take turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.config.downstream import at_place_in_use, each_place, target_of
from drainer.config.options import ENV_PREFIX, DrainerConfig
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError, Unavailable


def config(tmp_path: Path, lines: str) -> DrainerConfig:
    file = tmp_path / "drainer.toml"
    file.write_text(f"[syncer.to]\n{lines}\n")
    return loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        ('host = "a"', (("a", 3306),)),
        ('host = "a"\nport = 4000', (("a", 4000),)),
        ('host = "a,b"', (("a,b", 3306),)),
        ('host = ["a"]', (("a", 3306),)),
        ('host = ["a", "b:3307", "c"]\nport = 4000', (("a", 4000), ("b", 3307), ("c", 4000))),
        (
            'host = ["10.0.0.1:1", "::1", "[::1]:2", "[::2]"]',
            (("10.0.0.1", 1), ("::1", 3306), ("::1", 2), ("::2", 3306)),
        ),
    ],
)
def test_places(tmp_path: Path, lines: str, places: tuple[tuple[str, int], ...]) -> None:
    assert config(tmp_path, lines).downstream_places == places


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("host = []", "empty list"),
        ('host = ["a", "a:3306"]', "twice"),
        ('host = ["a:b"]', "syncer.to.host"),
        ('host = ["a:0"]', "names no server"),
        ('host = [""]', "names no server"),
        ('host = ["a:99999"]', "syncer.to.host"),
        ("host = 7", "a text, or a list of texts, is expected"),
        ("host = [7]", "a text, or a list of texts, is expected"),
    ],
)
def test_what_is_no_place_is_named(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(tmp_path, lines)


def test_all_targets_of_a_process_are_at_the_same_server(tmp_path: Path) -> None:
    lines = 'host = ["a.places.test", "b.places.test:3307"]'
    one, two = (target_of(config(tmp_path, lines)) for _ in range(2))
    assert one.addresses is two.addresses is not None
    assert target_of(config(tmp_path, 'host = "a.places.test"')).addresses is None
    assert target_of(config(tmp_path, lines + '\nsocket = "/s"')).addresses is None, "the socket counts"


class Writable:
    def is_read_only(self) -> bool:
        return False

    def cut(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_who_looks_at_one_server_gets_one(tmp_path: Path) -> None:
    several = config(tmp_path, 'host = ["a.looks.test", "b.looks.test:3307"]')
    assert several.has_several_downstreams
    assert [one.downstream_places for one in each_place(several)] == [
        (("a.looks.test", 3306),),
        (("b.looks.test", 3307),),
    ]
    addresses = target_of(several).addresses
    assert addresses is not None

    def opened(place: tuple[str, int]) -> Writable:
        if place[0] == "a.looks.test":
            raise Unavailable("it is away")
        return Writable()

    addresses.session(opened)
    here = at_place_in_use(several)
    assert (here.to_host, here.to_port, target_of(here).addresses) == ("b.looks.test", 3307, None)
    single = config(tmp_path, 'host = "a"')
    assert (list(each_place(single)), at_place_in_use(single)) == ([single], single)
