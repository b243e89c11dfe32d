"""Passwords: from wherever they come, and never in what is said about them."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from drainer.config import password
from drainer.config.options import ENV_PREFIX, DrainerConfig
from tidb_binlog.config import loading, secret_file
from tidb_binlog.errors import ConfigError

OTHER_KEY = "00112233445566778899aabbccddeeff"
SECRET = "s3cret-pässwörd"


def encrypted(text: str, hexadecimal: str) -> str:
    """The form as defined, by another way than the module: CFB out of single AES blocks."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    vector = bytes(range(16))
    block_cipher = Cipher(algorithms.AES(bytes.fromhex(hexadecimal)), modes.ECB()).encryptor()
    data, before, body = text.encode(), vector, b""
    while data:
        stream = block_cipher.update(before)
        piece = bytes(a ^ b for a, b in zip(data[:16], stream, strict=False))
        body, before, data = body + piece, piece, data[16:]
    return base64.b64encode(vector + b"@" + body).decode()


@pytest.mark.parametrize("text", ["", "x", SECRET, "0123456789abcdef", "long " * 20])
def test_the_go_form_is_read_with_the_built_in_key_and_with_ones_own(text: str) -> None:
    known = encrypted(text, password.BUILT_IN_KEY)
    assert password.decrypt("k", known, {}) == text
    own = encrypted(text, OTHER_KEY)
    assert password.decrypt("k", own, {password.KEY_VARIABLE: OTHER_KEY}) == text


@pytest.mark.parametrize(
    ("text", "environ", "word"),
    [
        ("no base64!", {}, "not base64"),
        (base64.b64encode(b"short").decode(), {}, "form"),
        (base64.b64encode(b"v" * 16 + b"#" + b"body").decode(), {}, "form"),
        (encrypted(SECRET, OTHER_KEY), {}, "cannot be decrypted"),
        (encrypted(SECRET, password.BUILT_IN_KEY), {password.KEY_VARIABLE: OTHER_KEY}, "cannot be decrypted"),
        (encrypted(SECRET, OTHER_KEY), {password.KEY_VARIABLE: OTHER_KEY[:-2]}, "15 bytes"),
        (encrypted(SECRET, OTHER_KEY), {password.KEY_VARIABLE: "zz" * 16}, "not hexadecimal"),
    ],
)
def test_what_cannot_be_read_says_so_without_a_secret(text: str, environ: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as raised:
        password.decrypt("syncer.to.encrypted_password", text, environ)
    said = str(raised.value)
    assert raised.value.hint
    for secret in (SECRET, text, OTHER_KEY, OTHER_KEY[:-2], "zz" * 16, password.BUILT_IN_KEY):
        assert secret not in said


def test_the_order_is_encrypted_file_plain_environment(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("of the file\r\n")
    environ = {password.PASSWORD_VARIABLE: "of the environment"}
    go = encrypted("of Go", password.BUILT_IN_KEY)
    assert password.find("s", go, "", "plain", environ) == "of Go"
    assert password.find("s", "", str(path), "", environ) == "of the file"
    assert password.find("s", "", "", "plain", environ) == "plain"
    assert password.find("s", "", "", "", environ) == "of the environment"
    assert password.find("s", "", "", "", {}) == ""
    for key, arguments in (
        ("encrypted_password", (go, str(path), "")),
        ("password", ("", str(path), "plain")),
    ):
        with pytest.raises(ConfigError, match=f"both password-file and {key}"):
            password.find("s", *arguments, environ)


def test_a_file_holds_one_line_and_is_there(tmp_path: Path) -> None:
    path = tmp_path / "password"
    for content in ("one\ntwo\n", "x" * 5000):
        path.write_text(content)
        with pytest.raises(ConfigError, match="more than one line"):
            secret_file.read("k", str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not text"):
        secret_file.read("k", str(path))
    with pytest.raises(ConfigError, match="No such file"):
        secret_file.read("k", str(tmp_path / "none"))


def test_the_configuration_uses_them_and_masks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(password.KEY_VARIABLE, raising=False)
    file = tmp_path / "drainer.toml"
    go = encrypted(SECRET, password.BUILT_IN_KEY)
    file.write_text(
        f'[syncer.to]\npassword = "not-this"\nencrypted_password = "{go}"\n'
        f'[syncer.to.checkpoint]\ntype = "mysql"\nencrypted_password = "{go}"\n'
    )
    settings = loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)
    assert settings.downstream[3] == SECRET
    assert settings.checkpoint_server[3] == SECRET
    shown = repr(settings) + str(loading.describe(settings)) + str(settings.remarks())
    for secret in (SECRET, go, "not-this"):
        assert secret not in shown
    assert any(password.KEY_VARIABLE in remark for remark in settings.remarks())
    monkeypatch.setenv(password.KEY_VARIABLE, OTHER_KEY)
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)


def test_reading_one_warns_of_nothing() -> None:
    """Whatever release of the library is installed: a deprecation would be an error here."""
    code = "from drainer.config import password; print(password.decrypt('k', '{}', {{}}))"
    text = encrypted("plain", password.BUILT_IN_KEY)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code.format(text)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain\n", "")
