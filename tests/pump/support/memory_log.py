"""A log directory in memory that knows what would survive a power cut, and can be told to fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class MemoryFile:
    name: str
    directory: MemoryDirectory
    data: bytearray = field(default_factory=bytearray)
    durable: int = 0

    @property
    def path(self) -> str:
        return f"memory/{self.name}"

    def size(self) -> int:
        return len(self.data)

    def append(self, parts: Sequence[bytes]) -> None:
        joined = b"".join(parts)
        if self.directory.append_error is not None:
            self.data += joined[: len(joined) // 2]
            raise self.directory.append_error
        # Said before it is done: whoever looks from another thread never sees more than was said.
        self.directory.happened.append(f"append {self.name}")
        self.data += joined

    def sync(self) -> None:
        if self.directory.sync_error is not None:
            raise self.directory.sync_error
        self.durable = len(self.data)
        self.directory.happened.append(f"sync {self.name}")

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def renew(self, start: int) -> None:
        self.durable = len(self.data)

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.durable = min(self.durable, size)

    def close(self) -> None:
        pass


class MemoryDirectory:
    """`happened`: what was asked for, in order."""

    def __init__(self) -> None:
        self.files: dict[str, MemoryFile] = {}
        self.happened: list[str] = []
        self.append_error: OSError | None = None
        self.sync_error: OSError | None = None

    def names(self) -> list[str]:
        return sorted(self.files)

    def size(self, name: str) -> int:
        return len(self.files[name].data)

    def open(self, name: str) -> MemoryFile:
        return self.files[name]

    def create(self, name: str) -> MemoryFile:
        assert name not in self.files
        self.files[name] = MemoryFile(name, self)
        self.happened.append(f"create {name}")
        return self.files[name]

    def remove(self, name: str) -> None:
        del self.files[name]
        self.happened.append(f"remove {name}")

    def sync(self) -> None:
        self.happened.append("sync directory")

    def after_power_cut(self, keep_unsynced: int = 0) -> MemoryDirectory:
        """What is left: synced bytes and at most `keep_unsynced` more of each file."""
        left = MemoryDirectory()
        for name, file in self.files.items():
            size = min(len(file.data), file.durable + keep_unsynced)
            left.files[name] = MemoryFile(name, left, bytearray(file.data[:size]), size)
        return left
