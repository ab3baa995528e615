from typing import Any

from typing_extensions import Buffer

def read(header: Buffer, binary: bool = False) -> tuple[int, dict[str, Any]]: ...
