from typing import Any

from mqcore.bench.engine import LoadEngine

DEPTH_MAX: int
TEMPLATES_MAX: int

class ProduceLoad(LoadEngine):
    def __init__(
        self, sockets: list[Any], output_limit: int,
        templates: list[list[tuple[bytes, dict[str, int]]]], depth: int, rate: float = 0.0,
        oneway_templates: list[list[tuple[bytes, dict[str, int]]]] | None = None,
        commit: tuple[bytes, int, int] | None = None,
    ) -> None: ...
    def allow(self, count: int) -> None: ...
    def finish_oneway(self) -> None: ...
