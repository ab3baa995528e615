"""Why a connection was closed, for the log of the serving process."""
from __future__ import annotations

from mqcore.net.remoting.frames import FrameCloseReason
from mqcore.net.transport.close_reasons import CloseReason
from mqcore.net.transport.tls_context import trouble

_REASONS: dict[int, str] = {
    FrameCloseReason.CLOSE_FRAME_LENGTH:
        "its frame length is {detail}, expected at most {frame_max}",
    FrameCloseReason.CLOSE_HEADER_LENGTH: "its header length {detail} is longer than its frame",
    FrameCloseReason.CLOSE_CODEC:
        "its header codec is {detail}, expected 0 (JSON) or 1 (ROCKETMQ)",
    FrameCloseReason.CLOSE_HEADER: "its header of {detail} bytes cannot be read",
    CloseReason.CLOSE_MEMORY: "there is no memory for {detail} bytes",
    CloseReason.CLOSE_UNREAD: "{detail} bytes of answers wait that it does not read",
    CloseReason.CLOSE_SHORT: "it held {detail} bytes without progress when"
                             " {memory} were spent",
    CloseReason.CLOSE_LIMIT:
        "its address or its account has {detail} connections, the most that [limits] allows",
    CloseReason.CLOSE_SLOW: "a frame of it is not whole after {detail} ms",
    CloseReason.CLOSE_TLS_REFUSED: "it began with TLS, and tls.mode is disabled, or there is no"
                                   " tls.certificate",
    CloseReason.CLOSE_PLAIN_REFUSED: "it began in the clear, and tls.mode is enforcing",
    CloseReason.CLOSE_TLS_FAILED: "TLS failed: {detail}",
    CloseReason.CLOSE_TLS_SLOW: "its TLS handshake is not done after {detail} ms",
    CloseReason.CLOSE_TLS_CROWD: "its TLS handshake was the oldest of {detail}",
    CloseReason.CLOSE_TLS_EMPTY: "{detail} bytes of TLS records hold no data",
    CloseReason.CLOSE_HTTP2: "it does not speak HTTP/2, or sent too many frames without a purpose",
    CloseReason.CLOSE_SILENT: "it said nothing for {detail} ms, and others wanted its place"
                              " ({count})",
}


def why_closed(reason: int, detail: int, *, memory: str, count: str, frame_max: int) -> str:
    """memory, count: the settings that bound the memory and the number of connections."""
    said = trouble(detail) if reason == CloseReason.CLOSE_TLS_FAILED else detail
    return _REASONS[reason].format(detail=said, memory=memory, count=count, frame_max=frame_max)
