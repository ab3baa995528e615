from typing import TypeVar

class MessageCore:
    topic: str
    body: bytes
    flag: int
    @property
    def properties(self) -> dict[str, str]: ...
    @properties.setter
    def properties(self, value: dict[str, str]) -> None: ...
    def describe(self, wait_store: bool, tags: str | None, keys: str | None) -> None: ...
    def property_text(self, name: str) -> str | None: ...

class ResultCore:
    status: int                     # a SendStatus
    message_id: str
    offset_message_id: str
    queue: object                   # a MessageQueue
    queue_offset: int
    region_id: str
    transaction_id: str
    is_traced: bool
    recall_handle: str

_Kind = TypeVar("_Kind", bound=ResultCore)

def results_of(kind: type[_Kind], whole: ResultCore, keys: list[str]) -> list[_Kind]: ...
