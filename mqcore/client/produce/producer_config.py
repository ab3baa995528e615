"""Options of a producer beside those of every role (client.md 2, 9.1)."""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mqcore.client.config import ClientConfig, ClientOptions, client_config
from mqcore.client.core.compression import Compression
from mqcore.client.core.options import check_topic, positive_seconds, whole
from mqcore.client.core.retry import RETRY_CODES
from mqcore.client.errors import ConfigError
from mqcore.client.produce.serialization import Serializer, to_json
from mqcore.wire.codes import TEMPLATE_TOPIC, TRACE_TOPIC

_COUNT_MAX = 1_000_000
_BYTES_MAX = 1 << 40
_LINGER_MAX_S = 60.0


class ProducerOptions(ClientOptions, total=False):
    """The options of producers by name; `ProducerConfig` and `ClientConfig` say what they mean."""

    topics: Sequence[str]
    send_timeout: float
    retry_count: int
    retry_codes: Collection[int]
    retry_not_ok: bool
    latency_faults: bool
    compression: Compression
    compression_level: int
    compress_over_bytes: int
    message_size_max_bytes: int
    max_in_flight: int
    max_in_flight_bytes: int
    linger: float
    batch_count: int
    batch_bytes: int
    template_topic: str
    template_queue_count: int
    trace: bool
    trace_topic: str
    serializer: Serializer


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """
    topics                  looked up before the start returns: the brokers know the producer then
    send_timeout            seconds of one send, all tries together
    retry_count             tries after the first one that failed
    retry_codes             answers after which another try is worth it
    retry_not_ok            also try again when stored, but not yet flushed or at the slave
    latency_faults          avoid brokers that were slow or failed for a while (2.5)
    compression             how bodies are compressed, with compression_level (0 to 22)
    compress_over_bytes     the smallest body that is
    message_size_max_bytes  of a body before compression, and of a whole batch
    max_in_flight           messages whose outcome is not known; max_in_flight_bytes their bytes
    linger                  seconds that messages wait for others to leave in one batch; 0: none do
    batch_count             messages of one batch at most; batch_bytes their bytes
    template_topic          whose brokers make a topic on its first message, with
                            template_queue_count queues
    trace                   send trace messages to trace_topic (7.1)
    serializer              makes bytes or a str of bodies that are neither, where `send` gets a
                            topic and a body
    Raises ConfigError, naming the option.
    """

    topics: Sequence[str] = ()
    send_timeout: float = 3.0
    retry_count: int = 2
    retry_codes: Collection[int] = RETRY_CODES
    retry_not_ok: bool = False
    latency_faults: bool = False
    compression: Compression = Compression.ZLIB
    compression_level: int = 5
    compress_over_bytes: int = 4_096
    message_size_max_bytes: int = 4 * 1024 * 1024
    max_in_flight: int = 10_000
    max_in_flight_bytes: int = 64 * 1024 * 1024
    linger: float = 0.0
    batch_count: int = 128
    batch_bytes: int = 256 * 1024
    template_topic: str = TEMPLATE_TOPIC
    template_queue_count: int = 4
    trace: bool = False
    trace_topic: str = TRACE_TOPIC
    serializer: Serializer = to_json

    def __post_init__(self) -> None:
        positive_seconds(self.send_timeout, "send_timeout")
        whole(self.retry_count, "retry_count", 0, 100)
        whole(self.compression_level, "compression_level", 0, 22)
        whole(self.compress_over_bytes, "compress_over_bytes", 0, _BYTES_MAX)
        whole(self.message_size_max_bytes, "message_size_max_bytes", 1, 16 * 1024 * 1024)
        whole(self.max_in_flight, "max_in_flight", 1, _COUNT_MAX)
        whole(self.max_in_flight_bytes, "max_in_flight_bytes", 1, _BYTES_MAX)
        whole(self.batch_count, "batch_count", 1, _COUNT_MAX)
        whole(self.batch_bytes, "batch_bytes", 1, _BYTES_MAX)
        object.__setattr__(
            self, "batch_bytes", min(self.batch_bytes, self.message_size_max_bytes))
        whole(self.template_queue_count, "template_queue_count", 1, 65_536)
        if not isinstance(self.linger, int | float) or not 0 <= self.linger <= _LINGER_MAX_S:
            raise ConfigError(f"linger {self.linger!r}: expected seconds, 0 to {_LINGER_MAX_S:g}")
        if not callable(self.serializer):
            raise ConfigError(f"serializer {self.serializer!r}: expected a function")
        if isinstance(self.topics, str):
            raise ConfigError(f"topics {self.topics!r}: expected a list of topics")
        for topic in self.topics:
            check_topic(topic, "topics")


def producer_configs(
    options: Mapping[str, Any], config: ClientConfig | None, own: Sequence[str] = (),
) -> tuple[ClientConfig, ProducerConfig]:
    """A producer's keyword options as settings; raises ConfigError, naming the bad one.

    own   further keyword parameters of the role
    """
    names = {each.name for each in dataclasses.fields(ProducerConfig)}
    client = client_config({k: v for k, v in options.items() if k not in names}, config,
                           [*names, *own])
    return client, ProducerConfig(**{k: v for k, v in options.items() if k in names})
