"""Questions to a client that does not read leave room for questions to others (client_calls.py)."""
from __future__ import annotations

import contextlib
import threading

from mqcore.broker.tables.client_calls import CALL_COUNT_MAX, SHARE_COUNT_MAX
from mqcore.wire import fastjson
from mqcore.wire.command import encode, request, response
from tests.attacks.honest import Honest
from tests.attacks.medians import assert_hardly_slower
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer
from tests.wire_live.state import State

DEAF = 10
QUESTIONS = 700                        # for each of them, of a connection of its own
INFO = 307                             # of a consumer, from its client


def info_of(group: str, client: str) -> bytes:
    fields: dict[str, str | None] = {
        "consumerGroup": group, "clientId": client, "jstackEnable": "false"}
    return encode(request(INFO, fields))


def drain(peer: Peer) -> None:
    with contextlib.suppress(AssertionError, OSError):
        while True:
            peer.receive_frame(60)


def answer_questions(peer: Peer, stop: threading.Event) -> None:
    """A client that answers what it is asked."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            command = peer.receive(0.2)
            if not command.is_response and command.code == INFO:
                peer.socket.sendall(encode(response(command, 0, body=fastjson.dumps({}))))


def test_clients_are_asked_while_others_do_not_read_what_they_are_asked(
    target: MqcoreProcess, watch: Watch, honest: Honest
) -> None:
    calm = honest.measure()
    stop = threading.Event()
    with contextlib.ExitStack() as opened:
        good = opened.enter_context(State(target.broker_addr))
        good.consumer("Good", "T", client_id="good")
        answering = threading.Thread(target=answer_questions, args=(good, stop), daemon=True)
        for number in range(DEAF):
            deaf = opened.enter_context(State(target.broker_addr))
            deaf.consumer("Deaf", "T", client_id=f"deaf-{number}")
            asker = opened.enter_context(Peer(target.broker_addr))
            asker.send(info_of("Deaf", f"deaf-{number}") * QUESTIONS)
            threading.Thread(target=drain, args=(asker,), daemon=True).start()
        answering.start()
        try:
            with honest.span() as attacked, Peer(target.broker_addr) as asking:
                for _ in range(50):
                    answer = asking.ask(INFO, {
                        "consumerGroup": "Good", "clientId": "good", "jstackEnable": "false"})
                    assert answer.code == 0, answer.remark
                honest.until(lambda: len(attacked.sends_ms) >= 100, "100 sends")
        finally:
            stop.set()
            answering.join()
    assert DEAF * min(QUESTIONS, SHARE_COUNT_MAX) > CALL_COUNT_MAX
    assert_hardly_slower(attacked, calm)
