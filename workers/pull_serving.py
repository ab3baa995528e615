"""
A pull-serving process: owns the connections that it accepted.

Reads     frames from its sockets; mapped log segments and consume queues; the shared tables
Owns      its connections, held pulls and parked requests
Wakes     writer (`appends`), coordinator (`requests`)
Restarts  empty: its clients connect again; answers for its predecessor's connections are dropped
"""
from __future__ import annotations

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.serving.pull_serving import PullServing


def live(inherited: Inherited, index: int) -> None:
    """The process, from fork to end."""
    segment, listeners = inherited.segment, inherited.listeners.serving[index]
    kept = inherited.kept_tls.settings
    last = index == segment.serving_count - 1
    serving = grpc_serving() if inherited.settings.serves_pop and last else PullServing
    loop.run(lambda settings: serving(settings, segment, index, listeners, kept),
             inherited.settings, segment)


def grpc_serving() -> type[PullServing]:
    """That of gRPC's clients; loaded here, so that a broker without any has none in memory."""
    from mqcore.workers.serving.grpc_serving import GrpcServing

    return GrpcServing
