"""Every attack by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.attacks import floods, header_blocks, messages, resets, sockets, stalls
from tests.attacks.session import Outcome, Target

Attack = Callable[[Target, float, int], Outcome]
"""(target, seconds at most, frames at most; where it is many connections, so many of them)."""

FRAMES_MAX: Final = 1 << 40
"""As many as fit into the time."""

ATTACKS: Final[dict[str, Attack]] = {
    "rapid_reset": floods.rapid_reset,
    "rapid_reset_with_message": floods.rapid_reset_with_message,
    "reset_by_zero_window_update": resets.reset_by_zero_window_update,
    "reset_by_window_overflow": resets.reset_by_window_overflow,
    "reset_by_data_after_end": resets.reset_by_data_after_end,
    "reset_by_headers_after_end": resets.reset_by_headers_after_end,
    "reset_by_bad_trailers": resets.reset_by_bad_trailers,
    "reset_by_content_length": resets.reset_by_content_length,
    "reset_by_bad_field": resets.reset_by_bad_field,
    "reset_by_priority_length": resets.reset_by_priority_length,
    "continuation_endless": header_blocks.continuation_endless,
    "continuation_empty": header_blocks.continuation_empty,
    "hpack_bomb": header_blocks.hpack_bomb,
    "table_churn": header_blocks.table_churn,
    "huge_literal": header_blocks.huge_literal,
    "huge_table": header_blocks.huge_table,
    "ping": floods.ping,
    "ping_deaf": floods.ping_deaf,
    "settings_empty": floods.settings_empty,
    "settings_deaf": floods.settings_deaf,
    "settings_full": floods.settings_full,
    "empty_data": floods.empty_data,
    "one_byte_data": floods.one_byte_data,
    "padding_only": floods.padding_only,
    "priority": floods.priority,
    "priority_new_streams": floods.priority_new_streams,
    "unknown": floods.unknown,
    "window_updates": floods.window_updates,
    "garbage_frames": floods.garbage_frames,
    "unfinished_streams": floods.unfinished_streams,
    "many_requests": floods.many_requests,
    "zero_window": stalls.zero_window,
    "window_of_one": stalls.window_of_one,
    "window_drips": stalls.window_drips,
    "deaf_puller": stalls.deaf_puller,
    "pages_unread": stalls.pages_unread,
    "pages_unread_http1": stalls.pages_unread_http1,
    "slow_preface": stalls.slow_preface,
    "silence": stalls.silence,
    "slow_header_block": stalls.slow_header_block,
    "slow_frame": stalls.slow_frame,
    "slow_body": stalls.slow_body,
    "gzip_bomb": messages.gzip_bomb,
    "broken_gzip": messages.broken_gzip,
    "empty_messages": messages.empty_messages,
    "claims": messages.claims,
    "filled_claims": messages.filled_claims,
    "connections": sockets.connections,
    "half_open_tls": sockets.half_open_tls,
    "handshakes": sockets.handshakes,
    "clear_on_tls": sockets.clear_on_tls,
    "tls_on_clear": sockets.tls_on_clear,
    "garbage": sockets.garbage,
    "http1_endless": sockets.http1_endless,
}

TLS_ONLY: Final = frozenset({"half_open_tls", "handshakes", "clear_on_tls"})
"""These need a target with TLS."""

CLEAR_ONLY: Final = frozenset({"tls_on_clear"})
"""These need a target without."""
