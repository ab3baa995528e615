from typing import Any

from mqcore.bench.engine import LoadEngine
from mqcore.bench.templates import Template

PULLS_MAX: int

class ConsumeLoad(LoadEngine):
    def __init__(
        self, sockets: list[Any], output_limit: int,
        templates: list[Template], slices: list[tuple[int, int, int]],
        depth: int, repeat: bool = False,
    ) -> None: ...
    def allow(self, count: int) -> None: ...
    def results(self) -> dict[str, Any]: ...
