from typing import Any

from mqcore.bench.engine import LoadEngine
from mqcore.bench.templates import Template

SENDS_MAX: int
TEMPLATES_MAX: int

class ProduceLoad(LoadEngine):
    def __init__(
        self, sockets: list[Any], output_limit: int,
        templates: list[list[Template]], depth: int, rate: float = 0.0,
        oneway_templates: list[list[Template]] | None = None, commit: Template | None = None,
    ) -> None: ...
    def allow(self, count: int) -> None: ...
    def finish_oneway(self) -> None: ...
