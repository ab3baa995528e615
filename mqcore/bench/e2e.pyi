from typing import Any

from mqcore.bench.engine import LoadEngine
from mqcore.bench.templates import Template

RATE_MAX: int

class EndToEndLoad(LoadEngine):
    def __init__(
        self, sockets: list[Any], output_limit: int,
        send_templates: list[Template], pull_templates: list[Template], offsets: list[int],
        producer_count: int, rate: float, run_id: int,
    ) -> None: ...
    def allow(self, count: int) -> None: ...
    @property
    def sent_count(self) -> int: ...
    def results(self) -> dict[str, Any]: ...
