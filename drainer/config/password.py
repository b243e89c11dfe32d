"""Password: where the downstream's comes from, and the Go drainer's encrypted form.

Order   `encrypted_password`, `password-file`, `password`, then the environment (MYSQL_PSWD)
Form    base64 of a 16-byte initial vector, "@", and AES-CFB of the text; the key is the hexadecimal
        BINLOG_SECRET_KEY of 16, 24 or 32 bytes, else the one that stands in the Go drainer's sources
Why     the encrypted form is there for files of Go drainers; only `binlogctl encrypt` writes it. Everybody
        can read what was encrypted with the built-in key, and nothing notices a changed byte: a file that
        only the drainer's user may read, or the environment, keeps a secret better
Never   puts a password, a key or encrypted text into an error or a log line
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidb_binlog.config import secret_file
from tidb_binlog.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB
    from cryptography.hazmat.primitives.ciphers import Cipher

KEY_VARIABLE: Final = "BINLOG_SECRET_KEY"
PASSWORD_VARIABLE: Final = "MYSQL_PSWD"
BUILT_IN_KEY: Final = "a529b7665997f043a30ac8fadcb51d6aa032c226ab5b7750530b12b8c1a16a48"
KEY_BYTES: Final = (16, 24, 32)
_VECTOR_BYTES: Final = 16
_SEPARATOR: Final = b"@"


def decrypt(key: str, encrypted: str, environ: Mapping[str, str]) -> str:
    """The text of an `encrypted_password`; `key` is the option's name. Raises `ConfigError`."""
    secret = _secret_key(environ.get(KEY_VARIABLE, "") or BUILT_IN_KEY)
    try:
        data = base64.b64decode(encrypted, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{key} is not base64", hint="`binlogctl encrypt` writes it") from None
    vector, separator, body = data[:_VECTOR_BYTES], data[_VECTOR_BYTES:][:1], data[_VECTOR_BYTES + 1 :]
    if separator != _SEPARATOR:
        raise ConfigError(
            f"{key} does not have the form of an encrypted password",
            hint="`binlogctl encrypt` writes it; a plain one belongs into password",
        )
    decryptor = _cipher(secret, vector).decryptor()
    plain = decryptor.update(body) + decryptor.finalize()
    try:
        text = plain.decode()
    except UnicodeDecodeError:
        text = "\0"
    # Nothing in the form shows that a key is wrong; what comes out of one is hardly ever text.
    if not text.isprintable():
        raise ConfigError(
            f"{key} cannot be decrypted with this key",
            hint=f"check {KEY_VARIABLE} in this process's environment",
        )
    return text


def encrypt(text: str, environ: Mapping[str, str], vector: bytes = b"") -> str:
    """An `encrypted_password`. `vector`: at random if not given. Raises `ConfigError` for the key."""
    secret = _secret_key(environ.get(KEY_VARIABLE, "") or BUILT_IN_KEY)
    vector = vector or secrets.token_bytes(_VECTOR_BYTES)
    encryptor = _cipher(secret, vector).encryptor()
    body = encryptor.update(text.encode()) + encryptor.finalize()
    return base64.b64encode(vector + _SEPARATOR + body).decode()


def _cipher(secret: bytes, vector: bytes) -> Cipher[CFB]:
    # A start without an encrypted password needs none of it.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    try:
        from cryptography.hazmat.decrepit.ciphers.modes import CFB
    except ImportError:  # older releases have it among the others
        from cryptography.hazmat.primitives.ciphers.modes import CFB
    return Cipher(algorithms.AES(secret), CFB(vector))


def _secret_key(hexadecimal: str) -> bytes:
    try:
        secret = bytes.fromhex(hexadecimal)
    except ValueError:
        raise ConfigError(
            f"{KEY_VARIABLE} is not hexadecimal", hint="it is 32, 48 or 64 hexadecimal digits"
        ) from None
    if len(secret) not in KEY_BYTES:
        raise ConfigError(
            f"{KEY_VARIABLE} has {len(secret)} bytes", hint="it is 32, 48 or 64 hexadecimal digits"
        )
    return secret


def find(section: str, encrypted: str, path: str, plain: str, environ: Mapping[str, str]) -> str:
    """The password of a section (`syncer.to`). `ConfigError` if what is given cannot be read, or is given
    in two ways of which one would be passed over."""
    if path and (encrypted or plain):
        other = "encrypted_password" if encrypted else "password"
        raise ConfigError(f"{section} has both password-file and {other}", hint="remove one of them")
    if encrypted:
        return decrypt(f"{section}.encrypted_password", encrypted, environ)
    if path:
        return secret_file.read(f"{section}.password-file", path)
    return plain or environ.get(PASSWORD_VARIABLE, "")
