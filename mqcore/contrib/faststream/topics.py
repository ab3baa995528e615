"""The topic of a publisher or subscriber, with the prefixes of its routers."""
from __future__ import annotations

from typing import Any

from faststream._internal.utils.path import Address


class HasTopic:
    """An endpoint that was told a topic."""

    _outer_config: Any
    _topic: str

    @property
    def topic(self) -> str:
        """With the prefixes of its routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    @property
    def address(self) -> Address:
        """The same for FastStream."""
        return Address.literal(self.topic)


class SaysTopic:
    """What the schema says of an endpoint, whose `config` names a topic."""

    _outer_config: Any
    config: Any

    @property
    def topic(self) -> str:
        """With the prefixes of its routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"
