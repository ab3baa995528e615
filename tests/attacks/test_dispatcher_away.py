"""A broker that cannot make messages readable takes no more of them, and says so."""
from __future__ import annotations

import os
import resource
import signal
import time
from itertools import pairwise
from pathlib import Path

from mqcore.admin.status import describe
from mqcore.broker.settings.model import StoreSettings
from mqcore.participants import DISPATCHER
from mqcore.wire.codes import ResponseCode
from tests.attacks.honest import Honest, Span
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.workers.processes import kill, pid_of
from tests.workers.test_end import segment_of

QUICK = {"store.dispatch_stall_ms": 1000}
WAIT_S = 30.0
REFUSED = "what is stored cannot be made readable"


def refused(span: Span) -> bool:
    return any(code == ResponseCode.SERVICE_NOT_AVAILABLE and REFUSED in remark
               for code, remark in span.refusals)


def refuses(broker: MqcoreProcess) -> bool:
    (path,) = broker.shared_memory()
    run = describe(f"/{Path(path).name}")
    assert run is not None
    return run["log"]["writes_refused"] == "dispatcher behind"      # type: ignore[index]


def test_a_dispatcher_that_stands_still_stops_sends_until_it_has_caught_up(
    tmp_path: Path,
) -> None:
    with mqcore_up(tmp_path, QUICK) as broker:
        with Honest(broker.broker_addr) as honest:
            honest.measure(20)
            dispatcher = pid_of(broker, "dispatcher")
            os.kill(dispatcher, signal.SIGSTOP)
            with honest.span() as attacked:
                wait_until(lambda: refused(attacked), "a refusal", WAIT_S)
                assert refuses(broker)
                stored = segment_of(broker).log_state()["published"]
                os.kill(dispatcher, signal.SIGCONT)
                wait_until(lambda: not refuses(broker), "writes are taken again", WAIT_S)
            assert segment_of(broker).log_state()["dispatched"] >= stored
            honest.measure(20)
            honest.caught_up()
        honest.check()
        assert "the dispatcher has stood still" in broker.tail()
        assert "writes are taken again" in broker.tail()


def test_a_dispatcher_that_dies_again_and_again_stops_sends(tmp_path: Path) -> None:
    """Too little address space for its successors: each dies at its start."""
    with mqcore_up(tmp_path, QUICK) as broker:
        with Honest(broker.broker_addr) as honest:
            honest.measure(20)
            before = resource.prlimit(broker.pid, resource.RLIMIT_AS)
            resource.prlimit(broker.pid, resource.RLIMIT_AS, (64 << 20, before[1]))
            kill(broker, "dispatcher")
            with honest.span() as attacked:
                wait_until(lambda: refused(attacked), "a refusal", WAIT_S)
                resource.prlimit(broker.pid, resource.RLIMIT_AS, before)
                wait_until(lambda: not refuses(broker), "writes are taken again", WAIT_S)
            honest.caught_up()
        honest.check()


def moves(broker: MqcoreProcess) -> tuple[float, float]:
    """Wait until the dispatcher was seen to move; between which moments that was."""
    began = time.monotonic()
    segment = segment_of(broker)
    before = segment.log_state()["dispatched"]
    wait_until(lambda: segment.log_state()["dispatched"] > before, "the dispatcher goes on", WAIT_S)
    return began, time.monotonic()


def test_a_kill_of_the_dispatcher_refuses_nobody(tmp_path: Path) -> None:
    """Unless it stands still for as long as the setting allows, on a machine that is too slow."""
    with mqcore_up(tmp_path) as broker:
        with Honest(broker.broker_addr) as honest:
            with honest.span() as killed:
                moved = [moves(broker)]
                for starts in range(2, 5):
                    kill(broker, "dispatcher")
                    segment = segment_of(broker)
                    wait_until(lambda least=starts, seen=segment: seen.slot(DISPATCHER.slot)[
                        "incarnation"] >= least, "another dispatcher", WAIT_S)
                    moved.append(moves(broker))
                    honest.measure(20)
                    moved.append(moves(broker))
            stood_s = max(after - before for (before, _), (_, after) in pairwise(moved))
            if stood_s < StoreSettings().dispatch_stall_ms / 1000:
                assert killed.refusals == []
            assert all(REFUSED in remark for _, remark in killed.refusals)
            wait_until(lambda: not refuses(broker), "writes are taken", WAIT_S)
            honest.caught_up()
        honest.check()
