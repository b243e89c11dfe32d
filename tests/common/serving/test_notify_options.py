"""Where events go: what is right, what is refused, and that nothing of the URL or the secret is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.common.notify.receiver import Receiver, listening
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError, Conflict
from tidb_binlog.observe import log
from tidb_binlog.process.daemon import Daemon
from tidb_binlog.serving.notify_options import SECRET_VARIABLE, NotifyOptions, notifying


def test_nothing_is_told_by_default() -> None:
    assert NotifyOptions().notify_endpoint is None


def test_the_url_is_taken_apart_and_shown_without_what_is_nobodys_business(tmp_path: Path) -> None:
    secret, ca = tmp_path / "secret", tmp_path / "ca.pem"
    secret.write_text("shared\n")
    url = "https://me:p%40ss@hooks.example/binlog?token=t0ken"
    options = NotifyOptions(notify_url=url, notify_secret_file=str(secret), notify_ssl_ca=str(ca))
    end = options.notify_endpoint
    assert end is not None
    assert (end.scheme, end.address, end.target) == ("https", "hooks.example:443", "/binlog?token=t0ken")
    assert (end.user, end.secret) == ("me:p@ss", b"shared")
    assert end.tls is not None
    assert str(end) == "https://hooks.example:443"
    for text in (repr(end), repr(options), str(loading.describe(options))):
        assert not any(hidden in text for hidden in ("t0ken", "p%40ss", "p@ss", "shared"))


@pytest.mark.parametrize(
    ("url", "address", "target"),
    [
        ("http://h", "h:80", "/"),
        ("http://h:8080/a/b", "h:8080", "/a/b"),
        ("https://[::1]:9/x", "[::1]:9", "/x"),
    ],
)
def test_urls(url: str, address: str, target: str) -> None:
    end = NotifyOptions(notify_url=url).notify_endpoint
    assert end is not None
    assert (end.address, end.target) == (address, target)


def test_the_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "whsec_AAEC")
    end = NotifyOptions(notify_url="http://h").notify_endpoint
    assert end is not None
    assert end.secret == bytes([0, 1, 2])
    (tmp_path / "f").write_text("s")
    with pytest.raises(ConfigError, match="given twice"):
        NotifyOptions(notify_url="http://h", notify_secret_file=str(tmp_path / "f")).check_notify()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"notify_url": "ftp://t0ken"}, "notify-url is no URL"),
        ({"notify_url": "http://h/t0ken\r\nX: y"}, "notify-url is no URL"),
        ({"notify_url": "http://h:t0ken/"}, "notify-url is no URL"),
        ({"notify_url": "http://h/t0ken", "notify_ssl_ca": "/ca"}, "notify-ssl-ca is set"),
        ({"notify_secret_file": "/f"}, "notify-secret-file is set without notify-url"),
        ({"notify_ssl_ca": "/f"}, "notify-ssl-ca is set without notify-url"),
        ({"notify_url": "http://h/t0ken", "notify_secret_file": "/nowhere"}, "notify-secret-file /nowhere"),
    ],
)
def test_what_is_wrong_is_one_line_without_the_url(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        NotifyOptions(**values).check_notify()
    assert "t0ken" not in str(refused.value)


def test_it_is_in_no_command_line() -> None:
    assert all(
        entry.flag is None
        for name, entry in loading.options(NotifyOptions).items()
        if name.startswith("notify_")
    )


@pytest.mark.parametrize("fails", [True, False])
async def test_the_exit_code_and_its_reason_are_told_last(
    fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def setup(process: Daemon) -> None:
        if fails:
            raise Conflict("the id is taken", hint="choose another")
        process.stop()

    async with listening(Receiver()) as receiver:
        process = Daemon("test", log.get("test"))
        options = NotifyOptions(notify_url=f"http://127.0.0.1:{receiver.port}/hook")
        assert notifying(options, "pump", "p1", process) is not None
        code = await process.run(setup)
    assert code == (5 if fails else 0)
    (body,) = [body for _, _, body in receiver.came]
    found = json.loads(body)
    assert (found["type"], found["state"], found["subject"]) == ("ended", "happened", "p1")
    reason = "the id is taken (choose another)" if fails else "stopped on request"
    assert found["details"] == {"exit_code": code, "reason": reason}
    capsys.readouterr()


async def test_without_a_url_nobody_is_told() -> None:
    process = Daemon("test", log.get("test"))
    assert notifying(NotifyOptions(), "pump", "p1", process) is None
