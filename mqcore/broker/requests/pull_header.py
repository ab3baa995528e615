"""The header of PULL_MESSAGE, as the coordinator reads it."""
from __future__ import annotations

from dataclasses import dataclass

from mqcore.broker.request import Fields
from mqcore.wire.tags import EXPRESSION_TAG


@dataclass(slots=True, frozen=True)
class PullHeader:
    """The header of PULL_MESSAGE (remoting.md 4.2.1)."""

    group: str
    topic: str
    queue_id: int
    offset: int
    sys_flag: int
    commit_offset: int
    expression: str | None
    expression_type: str
    version_ms: int

    @classmethod
    def read(cls, fields: Fields) -> PullHeader:
        """Raises FieldError for a field that is missing or no number."""
        fields.i32("maxMsgNums")
        fields.i64("suspendTimeoutMillis")
        return cls(
            group=fields.text("consumerGroup"),
            topic=fields.text("topic"),
            queue_id=fields.i32("queueId"),
            offset=fields.i64("queueOffset"),
            sys_flag=fields.i32("sysFlag"),
            commit_offset=fields.i64("commitOffset"),
            expression=fields.ext.get("subscription"),
            expression_type=fields.text_or("expressionType", "") or EXPRESSION_TAG,
            version_ms=fields.i64("subVersion"),
        )
