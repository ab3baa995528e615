"""An SQL92 expression that is dear to evaluate costs the one who wrote it (N9, N10)."""
from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.attacks.honest import Honest
from tests.attacks.medians import assert_hardly_slower
from tests.hostile.watch import Watch
from tests.pull.puller import Puller, next_offset
from tests.support.mqcore_process import MqcoreProcess, mqcore_up

MESSAGES = 900
LONG = "7" * 15_000                    # of two properties: each comparison looks at all of it
SHORT, LARGE = 896, 6_500              # bytes of an expression
SENDS = 150
REST = 0.5                             # an attack lasts as long as they do


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """One serving process: what it does for the attacker it does beside the honest client."""
    settings: dict[str, object] = {
        "broker.property_filter_enable": True, "processes.serving_count": 1}
    with mqcore_up(tmp_path_factory.mktemp("filtered"), settings) as running:
        with Puller(running.broker_addr) as puller:
            puller.topic("Dear", 1)
            puller.batch("Dear", [{"a": LONG, "b": LONG}] * MESSAGES)
        yield running


def dear(size: int) -> str:
    """An expression of about that many bytes that no message of the topic passes."""
    return "a = b AND " * (size // 10 - 1) + "a <> b"


def pull_until(target: MqcoreProcess, stop: threading.Event, expression: str,
               pulled: list[int]) -> None:
    """One connection that pulls by `expression`, eight requests ahead."""
    with Puller(target.broker_addr) as puller:
        at = 0
        while not stop.is_set():
            asked = [puller.ask_to_pull("Dear", subscription=expression, queueOffset=at,
                                        expressionType="SQL92") for _ in range(8)]
            answers = [puller.answer_to(opaque, 60) for opaque in asked]
            assert {answer.code for answer in answers} <= {20, 23}, answers[0].remark
            at = next_offset(answers[0]) % MESSAGES if answers[0].code == 20 else 0
            pulled.append(at)


@pytest.mark.slow
@pytest.mark.parametrize("size", [SHORT, LARGE])
@pytest.mark.parametrize("connections", [1, 6])
def test_pulls_by_a_dear_expression_do_not_delay_the_others(
    target: MqcoreProcess, watch: Watch, honest: Honest, size: int, connections: int
) -> None:
    calm = honest.measure()
    stop, pulled = threading.Event(), list[int]()
    threads = [threading.Thread(target=pull_until, args=(target, stop, dear(size), pulled))
               for _ in range(connections)]
    for thread in threads:
        thread.start()
    try:
        honest.until(lambda: pulled, "the first answer of the attacker")
        attacked = honest.measure(SENDS)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert_hardly_slower(attacked, calm)


def test_a_dear_expression_finds_what_it_wants_in_the_end(target: MqcoreProcess) -> None:
    """Its pulls look at fewer messages, and each goes on where the last one ended."""
    expression = dear(SHORT).replace("a <> b", "n = 1")
    with Puller(target.broker_addr) as puller:
        puller.batch("Dear", [{"a": LONG, "b": LONG, "n": "1"}])
        at, rounds = 0, 0
        while (answer := puller.sql("Dear", expression, queueOffset=at)).code == 20:
            assert next_offset(answer) > at
            at, rounds = next_offset(answer), rounds + 1
        assert (answer.code, next_offset(answer)) == (0, MESSAGES + 1)
        assert rounds > 1


@pytest.mark.slow
def test_held_pulls_with_a_dear_expression_do_not_delay_the_others(
    target: MqcoreProcess, watch: Watch, honest: Honest
) -> None:
    """Each message that comes is looked at by all of them."""
    calm = honest.measure()
    with Puller(target.broker_addr) as hoarder, Puller(target.broker_addr) as sender:
        sender.topic("DearHeld", 1)
        held = [hoarder.ask_to_pull(
            "DearHeld", subscription=dear(SHORT), expressionType="SQL92",
            sysFlag=6, suspendTimeoutMillis=600_000) for _ in range(400)]
        with honest.span() as attacked:
            while len(attacked.sends_ms) < SENDS:
                sender.answer_to(sender.put_later("DearHeld", {"a": LONG, "b": LONG}, b"x"), 60)
        told = {hoarder.receive(60).opaque for _ in held}
    assert told == set(held)
    assert_hardly_slower(attacked, calm)
