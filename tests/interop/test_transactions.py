"""
Transactions of Java and Go producers: the same code, the same outcome, on mqcore as on stock.

The C++ client's package for Python has no transaction producer (its C interface leaves it out).
"""
from __future__ import annotations

from collections import defaultdict

import pytest

from tests.interop.conftest import CHECK_MAX, Cluster
from tests.interop.messages import Line, Message, assert_same, message, mids, plain
from tests.interop.runner import Programs, Run
from tests.interop.toolchain import require_client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
SENDERS = ("java", "go")
WAIT_CHECKS_MS = 30_000
FINAL = 8                       # transaction bits of a committed message's sysFlag
TRANSACTION_BITS = 12
SETTLE_S = 4                    # of reading on, for what must not come: three rounds of checks
UNKNOWN, COMMIT, ROLLBACK = "UNKNOW", "COMMIT_MESSAGE", "ROLLBACK_MESSAGE"


def topic_of(programs: Programs, cluster: Cluster, name: str) -> str:
    require_client("java")
    topic = f"tx-{name}-{cluster.kind}"
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=4)
    return topic


def moded(modes: tuple[str, ...]) -> list[Message]:
    return [message(f"{mode}-{index}", f"body of {mode} {index} ☃", mode, tags="T",
                    keys=f"{mode}-key-{index}") for index, mode in enumerate(modes)]


def reader(programs: Programs, cluster: Cluster, topic: str, count: int) -> Run:
    """Reads on for a while after `count` messages: one too many is seen."""
    return programs.consume("java", cluster.namesrv_addr, topic, f"{topic}-readers", count,
                            linger_ms=1_000 * SETTLE_S)


def checks(lines: list[Line]) -> dict[str, list[int]]:
    """By message: the numbers of checks that each question named."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        if "asked" in line:
            found[line["asked"]].append(line["times"])
    return dict(found)


def states(lines: list[Line]) -> dict[str, str]:
    return {line["id"]: line["state"] for line in lines if "state" in line}


@pytest.mark.slow
@pytest.mark.parametrize("client", SENDERS)
def test_a_transaction_is_seen_if_it_commits_at_once_or_when_asked(
    programs: Programs, cluster: Cluster, client: str,
) -> None:
    require_client(client)
    topic = topic_of(programs, cluster, f"all-{client}")
    sent = moded(("commit", "rollback", "check-commit", "check-rollback", "check-late", "commit"))
    seen = [one for one in sent if "rollback" not in one["mode"]]
    reading = reader(programs, cluster, topic, len(seen))
    producing = programs.produce(client, cluster.namesrv_addr, topic, sent, group=f"PG-{topic}",
                                 wait_checks_ms=WAIT_CHECKS_MS)
    lines = producing.finish()
    received = reading.finish()

    assert_same(seen, received, topic)
    assert checks(lines) == {"check-commit-2": [1], "check-rollback-3": [1],
                             "check-late-4": [1, 2]}
    for line in received:
        assert line["sysFlag"] & TRANSACTION_BITS == FINAL
        assert line["properties"]["TRAN_MSG"] == "true"
        assert line["properties"]["REAL_TOPIC"] == topic
        assert line["properties"]["UNIQ_KEY"] == line["msgId"]
    if client == "java":
        assert states(lines) == {
            "commit-0": COMMIT, "rollback-1": ROLLBACK, "check-commit-2": UNKNOWN,
            "check-rollback-3": UNKNOWN, "check-late-4": UNKNOWN, "commit-5": COMMIT}


@pytest.mark.slow
def test_an_exception_in_the_listener_leaves_the_transaction_to_the_check(
    programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(programs, cluster, "throwing")
    sent = moded(("throw", "check-throw"))
    reading = reader(programs, cluster, topic, len(sent))
    lines = programs.produce("java", cluster.namesrv_addr, topic, sent, group=f"PG-{topic}",
                             wait_checks_ms=WAIT_CHECKS_MS).finish()

    assert_same(sent, reading.finish(), topic)
    assert states(lines) == {"throw-0": UNKNOWN, "check-throw-1": UNKNOWN}
    assert checks(lines) == {"throw-0": [1], "check-throw-1": [1, 2]}
    assert all(line["sameTransaction"] and line["topic"] == topic
               for line in lines if "asked" in line)


@pytest.mark.slow
@pytest.mark.parametrize("client", SENDERS)
def test_a_second_instance_answers_for_a_producer_that_was_killed(
    programs: Programs, cluster: Cluster, client: str,
) -> None:
    require_client(client)
    topic = topic_of(programs, cluster, f"killed-{client}")
    group = f"PG-{topic}"
    orphans = [message(f"orphan-{index}", "whose producer died", "orphan") for index in range(3)]
    own = message("own", "of the second instance", "commit")
    reading = reader(programs, cluster, topic, len(orphans) + 1)
    answers = [message(mid, "not sent", "answer") for mid in mids(orphans)]
    # Before the first one: it has to be there while the broker asks, once a second and CHECK_MAX
    # times. It knows nothing of the messages until the broker asks.
    second = programs.produce(client, cluster.namesrv_addr, topic, [own, *answers], group=group,
                              wait_checks_ms=2 * WAIT_CHECKS_MS)
    wait_until(lambda: any("id" in line for line in second.read_lines()), "the second instance")
    first = programs.produce(client, cluster.namesrv_addr, topic,
                             [*orphans, message("hang", "", "hang")], apart=True, group=group)
    wait_until(lambda: sum("id" in line for line in first.read_lines()) == len(orphans),
               "three half messages")
    first.stop()                                                    # kill -9
    lines = second.finish()

    assert_same([own, *orphans], reading.finish(), topic)
    assert sorted(checks(lines)) == mids(orphans)


@pytest.mark.slow
def test_a_transaction_that_nobody_decides_is_asked_about_so_often_and_no_more(
    programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(programs, cluster, "undecided")
    orphan = message("orphan", "nobody knows", "orphan")
    asking = programs.produce("java", cluster.namesrv_addr, topic,
                              [orphan, message("hang", "", "hang")], apart=True,
                              group=f"PG-{topic}")
    wait_until(lambda: len(checks(asking.read_lines()).get("orphan", [])) == CHECK_MAX,
               f"{CHECK_MAX} checks", timeout_s=60)
    reading = reader(programs, cluster, topic, 1)
    programs.produce("java", cluster.namesrv_addr, topic, plain(["after"])).finish()

    assert_same(plain(["after"]), reading.finish(), topic)
    asking.stop()
    assert checks(asking.read_lines()) == {"orphan": list(range(1, CHECK_MAX + 1))}


@pytest.mark.slow
def test_a_key_finds_a_committed_transaction_once_and_no_other(
    programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(programs, cluster, "keys")
    sent = moded(("commit", "rollback", "orphan"))
    programs.produce("java", cluster.namesrv_addr, topic, sent, group=f"PG-{topic}").finish()
    wait_until(lambda: len(found(programs, cluster, topic, "commit-key-0")) == 1,
               "the committed message in the index")

    (line,) = found(programs, cluster, topic, "commit-key-0")
    assert line["sysFlag"] & TRANSACTION_BITS == FINAL
    assert_same(sent[:1], [line], topic)
    for key in ("rollback-key-1", "orphan-key-2"):
        assert found(programs, cluster, topic, key) == []


def found(programs: Programs, cluster: Cluster, topic: str, key: str) -> list[Line]:
    """What the Java client finds; it has an exception for nothing."""
    run = programs.start_java("query", namesrv=cluster.namesrv_addr, topic=topic, key=key)
    if run.end() == 0:
        return run.lines
    assert "no message" in run.tail()
    return []
