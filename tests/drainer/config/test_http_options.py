"""Keys of the http sink: what cannot be used is one line, and no secret is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.config.options import ENV_PREFIX, DrainerConfig
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError


def load(tmp_path: Path, to: str) -> DrainerConfig:
    file = tmp_path / "drainer.toml"
    file.write_text(f'[syncer]\ndb-type = "http"\n[syncer.to]\n{to}\n')
    return loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)


def test_a_url_and_its_files(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("# ours\nAuthorization: Bearer x\n\nX-Team:  search \n")
    (tmp_path / "secret").write_text("whsec_czNjcmV0\n")
    settings = load(
        tmp_path,
        f'url = "https://[::1]:8443/a/b?token=t0ken"\nheaders-file = "{tmp_path / "headers"}"\n'
        f'secret-file = "{tmp_path / "secret"}"\n',
    )
    assert settings.http_server == ("https", "::1", 8443, "/a/b?token=t0ken")
    assert settings.http_headers == {"Authorization": "Bearer x", "X-Team": "search"}
    assert settings.http_secret == b"s3cret"
    assert "t0ken" not in repr(settings) + str(loading.describe(settings))


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://hook", ("http", "hook", 80, "/")),
        ("https://hook/x", ("https", "hook", 443, "/x")),
        ("http://127.0.0.1:9?y", ("http", "127.0.0.1", 9, "/?y")),
    ],
)
def test_ports_and_paths(tmp_path: Path, url: str, server: tuple[str, str, int, str]) -> None:
    assert load(tmp_path, f'url = "{url}"').http_server == server


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("", "syncer.to.url is missing"),
        ('url = "hook.example/x"', "no URL"),
        ('url = "ftp://hook/x"', "no URL"),
        ('url = "http:///x"', "no URL"),
        ('url = "http://hook:99999/"', "no URL"),
        ('url = "http://hook/a b"', "no URL"),
        ('url = "http://hook/\\n"', "no URL"),
        ('url = "http://user:hidden@hook/"', "holds a user"),
        ('url = "http://hook/"\nbatch-rows = 0', "syncer.to.batch-rows is 0"),
        ('url = "http://hook/"\nbatch-size = 0', "syncer.to.batch-size is 0"),
        ('url = "http://hook/"\ntimeout = "0s"', "syncer.to.timeout is 0"),
        ('url = "http://hook/"\n[syncer.to.security]\nssl-ca = "ca.pem"', "in clear"),
        ('url = "http://hook/"\nheaders-file = "no-such-file"', "cannot read syncer.to.headers-file"),
        ('url = "http://hook/"\nsecret-file = "no-such-file"', "cannot read syncer.to.secret-file"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, to: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        load(tmp_path, to)
    assert raised.value.hint
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Authorization Bearer hidden", "line 1 is no header"),
        ("\nX y: hidden", "line 2 is no header"),
        ("X: a\x07hidden", "line 1 is no header"),
        ("Content-Length: 3", "Content-Length is set by the drainer"),
        ("Webhook-Id: 3", "Webhook-Id is set by the drainer"),
        ("X: " + "y" * (70 << 10), "larger than 64 KiB"),
    ],
)
def test_headers_that_cannot_be_sent(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "headers").write_text(text)
    with pytest.raises(ConfigError, match=words) as raised:
        load(tmp_path, f'url = "http://hook/"\nheaders-file = "{tmp_path / "headers"}"')
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(("text", "words"), [("", "is empty"), ("whsec_hid*den", "is not base64")])
def test_secrets_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "secret").write_text(text)
    with pytest.raises(ConfigError, match=words) as raised:
        load(tmp_path, f'url = "http://hook/"\nsecret-file = "{tmp_path / "secret"}"')
    assert "hid*den" not in str(raised.value)
