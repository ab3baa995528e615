from collections.abc import Callable

from mqcore.client.errors import RocketMQError
from mqcore.wire.command import Command

class Waiter:
    deadline: float
    wants_place: bool
    def stored(
        self, code: int, queue_id: int, queue_offset: int, offset_message_id: str, region_id: str,
        transaction_id: str, is_traced: bool,
    ) -> None: ...
    def answered(self, command: Command) -> None: ...
    def failed(self, error: RocketMQError) -> None: ...

def take_expired(waiting: dict[int, Waiter], now: float) -> tuple[list[Waiter], float]: ...

class FrameReader:
    def __init__(
        self, waiting: dict[int, Waiter], on_request: Callable[[Command], None],
        on_stray: Callable[[Command], None], frame_length_max: int = ...,
    ) -> None: ...
    def room(self) -> memoryview: ...
    def received(self, count: int) -> None: ...
