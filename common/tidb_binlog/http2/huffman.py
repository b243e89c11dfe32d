"""Huffman: strings of header fields back from the code of RFC 7541, appendix B.

Out    the octets it stands for, or None when it is no such string
Holds  whole octets are decoded at a time: a row of 256 steps for each state, made when the state is first
       needed, since text has few of the 256
Why    a table of every step costs 65,536 tuples and 0.1 s at the start; bit by bit costs 8 times the time
Never  encodes: literals sent plain are legal (H5.2) and cost less time than they save octets
Tests  tests/common/http2/test_hpack.py
"""

from __future__ import annotations

# The code is canonical: by rising length, within a length by rising symbol, each code is the one before plus
# one. So the symbols of each length say it all; EOS is the last of the 30 bit codes.
_SYMBOLS: tuple[tuple[int, bytes], ...] = (
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b'!"()?'),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\0$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
    (19, bytes.fromhex("5cc3d0")),
    (20, bytes.fromhex("808283a2b8c2e0e2")),
    (21, bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6")),
    (22, bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9")),
    (23, bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef")),
    (24, bytes.fromhex("098e9091949fabced7e1eced")),
    (25, bytes.fromhex("c7cfeaeb")),
    (26, bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff")),
    (27, bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe")),
    (28, bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9")),
    (30, bytes.fromhex("0a0d16")),
)
_EOS = 256

# A state is a node of the code's tree: the bits read since the last whole symbol. The first eight are the
# paths of 0 to 7 ones, so that a string may end in just these: padding is at most 7 bits, all ones (H5.2).
_PADDINGS = 8
_BROKEN = 256  # the end of EOS, which no string may hold (H5.2); there are 256 nodes before it

# By octet: the next state, and the one or two symbols (or none) that end on the way. Two tuples, not pairs:
# all rows take 3 MiB so, and 6 as pairs. Symbols are characters, since strings grow in place, bytes do not.
_Row = tuple[tuple[int, ...], tuple[str, ...]]


def _tree() -> list[list[int]]:
    """For each state its successors for a 0 and a 1: another state, or ~symbol."""
    unknown = _EOS + 1
    nodes = [[unknown, ones + 1] for ones in range(_PADDINGS - 1)] + [[unknown, unknown]]
    code = length = 0

    def place(symbol: int) -> None:
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if nodes[node][bit] == unknown:
                nodes[node][bit] = len(nodes)
                nodes.append([unknown, unknown])
            node = nodes[node][bit]
        nodes[node][code & 1] = ~symbol

    for bits, symbols in _SYMBOLS:
        code, length = code << bits - length, bits
        for symbol in symbols:
            place(symbol)
            code += 1
    place(_EOS)
    nodes.append([_BROKEN, _BROKEN])
    return nodes


_NODES = _tree()
_rows: list[_Row | None] = [None] * len(_NODES)


def _row(state: int) -> _Row:
    """The steps out of a state for each octet."""
    steps = [(state, "")]
    for _ in range(8):
        reached = [(successor, text) for node, text in steps for successor in _NODES[node]]
        steps = [
            (node, text) if node >= 0 else (_BROKEN, "") if node == ~_EOS else (0, text + chr(~node))
            for node, text in reached
        ]
    row = _rows[state] = (tuple([node for node, _ in steps]), tuple([text for _, text in steps]))
    return row


def decode(coded: bytes) -> bytes | None:
    """The octets of a Huffman coded string; None where it holds EOS or ends in wrong padding."""
    rows = _rows
    state = 0
    decoded = ""
    for octet in coded:
        successors, texts = rows[state] or _row(state)
        state = successors[octet]
        decoded += texts[octet]
    return decoded.encode("latin-1") if state < _PADDINGS else None
