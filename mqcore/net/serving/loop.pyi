from socket import socket
from typing import Unpack

from mqcore.net.serving.live import LiveValues, Refused
from mqcore.net.transport.tls_context import TlsContext
from mqcore.shm.segment import Segment

class ServingLoop:
    def __init__(
        self, segment: Segment, index: int, listeners: list[tuple[socket, bool]],
        log_folder: bytes, queue_folder: bytes, *, store_address: tuple[str, int], cluster: str,
        broker_name: str = "",
        file_entries: int, connection_max: int, held_max: int, seed: int,
        extension_folder: bytes = b"", extension_file_bytes: int = 50331648,
        light_queues: bool = False, slave: bool = False, queue_files_max: int = 4096,
        extension_files_max: int = 1024, connection_memory_bytes: int = 1 << 28,
        **live: Unpack[LiveValues],
    ) -> None: ...
    def configure(
        self, *, region: str, trace_on: bool, body_bytes_max: int, idle_ms_max: int,
        memory_bytes: int, memory_count_max: int, memory_bytes_max: int, disk_count_max: int,
        disk_bytes_max: int, replay_count_max: int, replay_bytes_max: int,
        long_polling: bool, short_polling_ms: int, delay_level_count: int = 18,
        transactions_refused: bool = False, timers_refused: bool = True, timer_max_ms: int = 0,
        filters_enabled: bool = False, filter_retry: bool = False, slave_read: bool = False,
        accept_sends_from_ms: int = 0,
        address_limits: tuple[int, ...] = (), account_limits: tuple[int, ...] = (),
        limits_exempt: tuple[tuple[bytes, int], ...] = (),
    ) -> None: ...
    def secure(
        self, mode: int, context: TlsContext | None, handshake_ms_max: int,
        handshake_count_max: int,
    ) -> None: ...
    def hello(self) -> None: ...
    def run(self, slice_ms: int) -> None: ...
    def drain(self) -> None: ...
    def damaged(self) -> tuple[list[int], bool]: ...
    def events(self) -> tuple[list[tuple[str, int, int]], int]: ...
    def refusals(self) -> tuple[list[Refused], int]: ...
