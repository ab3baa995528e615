"""Delayed messages of Java and Go clients come on schedule, on mqcore as on the stock broker."""
from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.interop.conftest import DELAY_LEVELS, Cluster
from tests.interop.messages import Line, assert_same, message
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client

pytestmark = pytest.mark.timeout(300)
SENDERS = ("java", "go")
READERS = ("java", "go")
LEVEL_MAX = 18
DELAYS_MS = [1_000 * int(level.rstrip("s")) for level in DELAY_LEVELS.split()]
LEVELS = (1, 2, 3, 25)                     # 25 counts as the highest
EACH = 3
LATE_MS_MAX = {"mqcore": 500, "stock": 2_000}    # stock looks each 100 ms; both share the machine


def delay_ms(level: int) -> int:
    return DELAYS_MS[min(level, LEVEL_MAX) - 1]


def waited_ms(lines: Iterable[Line]) -> dict[str, int]:
    """By message: from the client's clock at the send to the broker's at the delivery."""
    return {line["properties"]["mid"]: line["storedAt"] - line["bornAt"] for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("client", SENDERS)
def test_delayed_messages_of_several_levels_come_on_schedule(
    programs: Programs, cluster: Cluster, client: str
) -> None:
    require_client("java")
    require_client(client)
    topic = f"levels-{cluster.kind}-{client}"
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=4)
    level_of = {f"{level}-{number}": level for level in LEVELS for number in range(EACH)}
    sent = [message("first", "its client connects while it is on its way"),
            message("at-once", "at once"),
            *(message(mid, f"body {mid}", delayLevel=level) for mid, level in level_of.items())]
    readers = {reader: programs.consume(reader, cluster.namesrv_addr, topic, f"{topic}-{reader}",
                                        len(sent)) for reader in READERS}
    programs.produce(client, cluster.namesrv_addr, topic, sent).finish()

    for reader, run in readers.items():
        lines = run.finish()
        assert_same(sent, lines, topic)
        waited = waited_ms(lines)
        del waited["first"]
        assert waited.pop("at-once") < LATE_MS_MAX[cluster.kind]
        late = {mid: ms - delay_ms(level_of[mid]) for mid, ms in waited.items()}
        print(f"{client} to {reader}: {min(late.values())} to {max(late.values())} ms late")
        assert min(late.values()) >= 0
        assert max(late.values()) <= LATE_MS_MAX[cluster.kind]
