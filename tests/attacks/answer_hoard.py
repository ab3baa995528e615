"""Many connections ask for what is large to build, all at once, and read it in their time."""
from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from tests.attacks.coordinator_hogs import FIELDS, make_tables
from tests.wire_live.peer import Closed, Peer


def ask_all(
    address: str, connections: int, is_over: Callable[[], bool], *, enough: int = 0,
) -> int:
    """
    Time spans of the largest topic, one to each connection; how many of them were answered.

    enough: so many answers are waited for; 0: all.
    """
    frame = encode(request(Code.QUERY_CONSUME_TIME_SPAN, dict(FIELDS)))
    answered = 0
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(address)) for _ in range(connections)]
        for peer in peers:
            peer.send(frame)
        waiting = list(peers)
        while waiting and not is_over() and answered < (enough or connections):
            peer = waiting.pop(0)
            try:
                peer.receive_frame(0.2)
                answered += 1
            except TimeoutError:
                waiting.append(peer)
            except Closed:
                continue                      # it read too slowly for what its answer takes
    return answered


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """For the soak: one crowd after the other, for so long."""
    over = threading.Event()
    ending = threading.Timer(seconds, over.set)
    ending.start()
    make_tables(broker_addr)
    try:
        while not over.is_set():
            ask_all(broker_addr, rng.randrange(4, 24), over.is_set)
    except (Closed, TimeoutError):
        return                            # the broker may end such a connection
    finally:
        ending.cancel()
