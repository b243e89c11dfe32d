"""Edges: valid messages that nobody sends in good faith, made from the descriptors of the .proto files.

In     a descriptor, the cluster's id, a timestamp that the oracle has given, chance
Out    messages with each field at each of its edges, the others at any of theirs; octets of a message in
       forms that no encoder writes and each parser reads
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tidb_binlog import tso
from tidb_binlog.binlog import KEY_BYTES_MAX
from tidb_binlog.clock import SystemClock
from tidb_binlog.upstream.upstream_time import AHEAD_MAX_S

SIZES: Final = (0, 1, 127, 128, KEY_BYTES_MAX, 3 * KEY_BYTES_MAX)
MANY: Final = 1000
SOON_S: Final = AHEAD_MAX_S - 0.5
"""So far ahead a timestamp is taken, and may not hide what others commit until then."""
NOT_DRAWN: Final = tso.LOGICAL_MAX // 2
"""Who ends another's transaction by its start_ts has ended it: the hostile one has timestamps that the oracle
does not give to the honest one."""
GROUPS_DEEP: Final = 90


class Edges:
    """Values of fields: none, the smallest and the largest, and those around their bounds here."""

    def __init__(self, cluster_id: int, near_ts: int, rng: random.Random) -> None:
        self.cluster_id, self.near_ts, self.rng = cluster_id, near_ts, rng

    def of(self, field: FieldDescriptor) -> list[Any]:
        if field.name.lower().replace("_", "") == "clusterid":
            return [self.cluster_id] * 6 + [None, (1 << 64) - 1]
        found: list[Any]
        if field.message_type is not None:
            found = [self.message(field.message_type) for _ in range(4)]
        elif field.type == field.TYPE_ENUM:
            assert field.enum_type is not None
            found = [*field.enum_type.values_by_number]  # unknown ones: see `forms`
        elif field.type == field.TYPE_BOOL:
            found = [False, True]
        elif field.type == field.TYPE_STRING:
            found = ["", "zstd", "gzip", "x" * MANY]
        elif field.type == field.TYPE_BYTES:
            found = [*map(bytes, SIZES)]
        else:
            found = self.number(field)
        if field.is_repeated:
            return [[], found, found * (MANY // len(found))]
        return [None, *found]

    def number(self, field: FieldDescriptor) -> list[int]:
        if field.type == field.TYPE_INT32:
            return [0, 1, -1, (1 << 31) - 1, -(1 << 31)]
        if field.type == field.TYPE_UINT64:
            return [0, 1, (1 << 64) - 1]
        assert field.type == field.TYPE_INT64, field.name
        now_ts, ts = tso.from_wall_s(SystemClock().wall_s()), self.near_ts
        ahead = [now_ts + tso.compose(int(seconds * 1000), NOT_DRAWN) for seconds in (SOON_S, 36_000)]
        return [0, 1, -1, ts - 1, ts, ts + 1, *ahead, (1 << 63) - 1, -(1 << 63)]

    def message(self, kind: Descriptor, name: str = "", value: Any = None) -> Message:
        """Random ones, but for one field."""
        message = message_factory.GetMessageClass(kind)()
        for field in kind.fields:
            chosen = value if field.name == name else self.rng.choice(self.of(field))
            if isinstance(chosen, list):
                getattr(message, field.name).extend(chosen)
            elif isinstance(chosen, Message):
                getattr(message, field.name).CopyFrom(chosen)
            elif chosen is not None:
                setattr(message, field.name, chosen)
        return message

    def messages(self, kind: Descriptor, times: int) -> Iterator[Message]:
        """Each pair of a field and one of its values with random ones of the others."""
        for _ in range(times):
            yield self.message(kind)
            for field in kind.fields:
                for at in range(len(self.of(field))):
                    yield self.message(kind, field.name, self.of(field)[at])


def forms(message: Message) -> Iterator[bytes]:
    """Octets that mean the message, or little else: the last of a field that is there twice counts, what is
    not known is passed over."""
    data = message.SerializeToString()
    yield data
    yield data + data  # messages merge, lists grow
    yield b"\x88\x80\x80\x80\x00\x01" + data  # a tag that is longer than it need be
    yield data + b"\x08\xff\xff\xff\xff\x0f"  # a type, or a cluster, that does not exist
    yield data + b"\xfa\xff\xff\xff\x0f\x00" * MANY  # the largest number that a field can have
    yield data + b"\x7b" * GROUPS_DEEP + b"\x7c" * GROUPS_DEEP  # groups in groups
    yield data[: len(data) // 2]  # no message any more, or another one
