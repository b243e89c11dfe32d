"""Encrypt: a password as `encrypted_password` of a drainer's file has it.

In     the text from a prompt that does not show it, or one line of standard input; never from the command
       line, which every user of the host can read (`-cmd encrypt -text` does, as Go has it)
Out    the encrypted form alone on standard output, remarks on standard error
Tests  tests/deploy/binlogctl/commands/test_forget.py
"""

from __future__ import annotations

import getpass
import os
import sys
from typing import Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE
from tidb_binlog.errors import Rejected
from tidb_binlog.observe import show

_CHARACTERS_MAX: Final = 4096


def encrypted(text: str) -> tuple[str, bool]:
    """The form of a file, and whether the key is the built-in one, which is public. Raises `ConfigError`."""
    from drainer.config import password  # and with it the cryptography that nothing else here needs

    return password.encrypt(text, os.environ), not os.environ.get(password.KEY_VARIABLE)


async def run(_: Call) -> int:
    """Raises `Rejected` for what is no password, `ConfigError` for the key."""
    form, key_is_known = encrypted(_read())
    if key_is_known:
        show.print_warning(
            "binlogctl: warning: BINLOG_SECRET_KEY is not set: anybody can read what is encrypted with the "
            "built-in key"
        )
    show.print_lines(form)
    return DONE


def _read() -> str:
    if sys.stdin.isatty():
        text = getpass.getpass("text to encrypt: ")
        if getpass.getpass("once more: ") != text:
            raise Rejected("the two differ", hint="try again")
    else:
        text = sys.stdin.readline(_CHARACTERS_MAX + 1)
        if len(text) > _CHARACTERS_MAX or sys.stdin.read(1):
            raise Rejected(
                "standard input holds more than one line", hint="give the password and nothing else"
            )
        text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise Rejected("there is no text to encrypt", hint="type it, or pipe it into standard input")
    return text
