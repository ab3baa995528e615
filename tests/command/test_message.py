"""`mqcore message`: what it prints, the keys of its documents, its exit statuses."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mqcore.client import PushConsumer, ReceivedMessage
from tests.command.conftest import Cluster
from tests.support.mqcore_process import MQCORE
from tests.support.waiting import wait_until

KEYS = {
    "topic", "messageId", "offsetMessageId", "broker", "queueId", "queueOffset", "tags", "keys",
    "bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes", "properties", "body"}


def test_a_message_is_got_by_its_ids_its_key_and_its_place(
        cluster: Cluster, tmp_path: Path) -> None:
    cluster.run("topic", "create", "M-get", "--queues", 1)
    (client_id,) = cluster.send("M-get", "hello", tags="new", keys="k1")

    place = f"M-get/{cluster.broker_name}/0/0"
    (message,) = cluster.json("message", "get", place)["messages"]
    assert set(message) == KEYS
    assert (message["body"], message["tags"], message["keys"]) == ("hello", "new", ["k1"])
    assert message["messageId"] == client_id
    ways = [(message["offsetMessageId"],), (client_id, "-t", "M-get"), ("k1", "-t", "M-get")]
    for way in ways:
        def same(way: tuple[str, ...] = way) -> bool:
            done = cluster.run("message", "get", *way, "--json")
            return done.returncode == 0 and json.loads(done.stdout)["messages"] == [message]
        wait_until(same, f"the message by {way}")               # a stock index is behind a little
    file = tmp_path / "body"
    cluster.text("message", "get", place, "--body-to", file)
    assert file.read_bytes() == b"hello"
    shown = cluster.text("message", "get", place)
    assert "\nhello\n" in shown
    assert "UNIQ_KEY" in shown


def test_no_such_message_is_status_3(cluster: Cluster) -> None:
    cluster.run("topic", "create", "M-none", "--queues", 1)

    assert cluster.refused("message", "get", f"M-none/{cluster.broker_name}/0/7")[0] == 3
    assert cluster.refused("message", "get", "no-key", "-t", "M-none")[0] == 3
    assert cluster.refused("message", "get", "nonsense")[0] == 2


def test_find_filters_by_tag_condition_text_time_and_number(cluster: Cluster) -> None:
    cluster.run("topic", "create", "M-find", "--queues", 2)
    cluster.send("M-find", "apple 1", "pear 2", tags="a", properties={"size": "1"})
    cluster.send("M-find", "apple 3", tags="b", properties={"size": "9"})

    def bodies(*options: object) -> list[str]:
        """By their number: messages of one millisecond have no order of their own."""
        found = cluster.json("message", "find", "-t", "M-find", *options)["messages"]
        times = [message["storeTimestamp"] for message in found]
        assert times == sorted(times)
        return sorted((message["body"] for message in found), key=lambda body: body[-1])

    assert bodies() == ["apple 1", "pear 2", "apple 3"]
    assert bodies("--tag", "b") == ["apple 3"]
    assert bodies("--grep", "^apple") == ["apple 1", "apple 3"]
    assert bodies("--since", "1h ago", "--until", "now") == ["apple 1", "pear 2", "apple 3"]
    assert bodies("--until", "1h ago") == []
    assert bodies("--limit", 1) in (["apple 1"], ["pear 2"], ["apple 3"])
    if cluster.kind == "mqcore":                            # off by default there
        assert bodies("--sql", "size > 5") == ["apple 3"]
    assert cluster.json("message", "find", "-t", "M-find", "--limit", 1)["more"] is True
    assert "raise --limit" in cluster.text("message", "find", "-t", "M-find", "--limit", 1)
    assert cluster.refused("message", "find", "-t", "M-fnd")[0] == 3


@pytest.mark.parametrize("options", [
    ("--grep", "("), ("--tag", "a", "--sql", "b = 1"), ("--since", "yesterdayish"),
    ("--since", "2026-01-01T00:00:00"),
])
def test_what_cannot_be_is_status_2(cluster: Cluster, options: tuple[str, ...]) -> None:
    cluster.run("topic", "create", "M-bad", "--queues", 1)

    assert cluster.run("message", "find", "-t", "M-bad", *options).returncode == 2


def test_tail_prints_what_comes_and_ends_at_its_limit(cluster: Cluster) -> None:
    cluster.run("topic", "create", "M-tail", "--queues", 1)
    cluster.send("M-tail", "before")
    lines = cluster.text("message", "tail", "-t", "M-tail", "--since", "1h ago", "--limit", 1,
                         "--ndjson").splitlines()
    assert [json.loads(line)["body"] for line in lines] == ["before"]

    running = subprocess.Popen(
        [*MQCORE, "message", "tail", "-t", "M-tail", "--ndjson", "-n", cluster.namesrv],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert running.stdout is not None
        sent = 0

        def came() -> bool:
            nonlocal sent
            cluster.send("M-tail", f"later {sent}")
            sent += 1
            return running.poll() is None and has_line(running)
        wait_until(came, "a message in the tail")
        assert json.loads(running.stdout.readline())["body"].startswith("later")
        running.send_signal(2)
        assert running.wait(60) == 130
    finally:
        running.kill()
        running.communicate()


def has_line(running: subprocess.Popen[bytes]) -> bool:
    """Whether a process has printed something that was not read yet."""
    import select

    return bool(select.select([running.stdout], [], [], 0.1)[0])


def test_hostile_bodies_and_names_move_no_terminal(cluster: Cluster) -> None:
    cluster.run("topic", "create", "M-hostile", "--queues", 1)
    cluster.send("M-hostile", "\x1b[2J\x07 \u202e red", properties={"p": "\x1b]0;title\x07"})
    cluster.send("M-hostile", b"\xff\xfe\x00bytes")             # type: ignore[arg-type]

    for command in (("find", "-t", "M-hostile"), ("get", f"M-hostile/{cluster.broker_name}/0/0"),
                    ("find", "-t", "M-hostile", "--json"), ("find", "-t", "M-hostile", "--ndjson")):
        text = cluster.text("message", *command)
        assert all(c == "\n" or c.isprintable() for c in text)
    found = cluster.json("message", "find", "-t", "M-hostile")["messages"]
    assert found[0]["body"] == "\x1b[2J\x07 \u202e red"
    assert found[1]["bodyBase64"] == "//4AYnl0ZXM="


def test_a_body_of_4_mib_is_shown_in_part_and_written_whole(
        cluster: Cluster, tmp_path: Path) -> None:
    cluster.run("topic", "create", "M-large", "--queues", 1)
    body = "line\n" * 800_000
    cluster.send("M-large", body)

    place = f"M-large/{cluster.broker_name}/0/0"
    shown = cluster.text("message", "get", place)
    assert shown.count("\n") < 250
    assert "and 799800 lines more" in shown
    file = tmp_path / "body"
    cluster.text("message", "get", place, "--body-to", file)
    assert file.read_text() == body


def test_resend_stores_a_copy_or_hands_it_to_a_member(cluster: Cluster) -> None:
    cluster.run("topic", "create", "M-again", "--queues", 1)
    cluster.send("M-again", "once more")
    place = f"M-again/{cluster.broker_name}/0/0"
    message_id = cluster.json("message", "get", place)["messages"][0]["offsetMessageId"]

    copy = cluster.json("message", "resend", message_id, "--yes")
    assert (copy["queueId"], copy["queueOffset"]) == (0, 1)

    got: list[str] = []

    def listen(message: ReceivedMessage) -> None:
        got.append(message.message_id)

    with PushConsumer("G-again", "M-again", listen, namesrv=cluster.namesrv, start="latest"):
        wait_until(lambda: cluster.run("group", "show", "G-again").returncode == 0
                   and cluster.json("group", "show", "G-again")["members"], "the member")
        done = cluster.json("message", "resend", message_id, "-g", "G-again", "--yes")
        assert done["result"] == "CR_SUCCESS"
        assert len(got) >= 1
    assert cluster.refused("message", "resend", message_id, "-g", "G-none")[0] == 3


def test_a_message_is_sent_for_later_and_taken_back(cluster: Cluster) -> None:
    if cluster.kind == "stock":
        pytest.skip("needs a broker that delivers at any time")
    ours = cluster.kind == "mqcore"
    cluster.run("topic", "create", "M-later", "--queues", 1)
    sent = json.loads(cluster.text(
        "message", "send", "-t", "M-later", "-p", "later", "--in", "1.5h"))
    assert cluster.refused("message", "recall", "nonsense")[0] == 2
    planned = cluster.json("message", "recall", sent["recallHandle"], "--dry-run")
    assert planned["dryRun"] is True
    told = cluster.run("message", "recall", sent["recallHandle"], "--json")
    assert told.returncode == (0 if ours else 5)               # stock does not say more
    done = json.loads(told.stdout)
    assert set(done) == {"topic", "broker", "messageId", "second", "outcome", "unreachable"}
    assert (done["topic"], done["messageId"], done["outcome"]) == (
        "M-later", sent["messageId"], "recalled" if ours else "unknown")
    if ours:                                                   # it counts until its time
        wait_until(lambda: cluster.json("message", "timed")["brokers"][0]["topics"].get(
            "M-later") == 1, "it is counted")
        timed = cluster.json("message", "timed")["brokers"][0]
        assert sum(timed["hours"].values()) == timed["pending"] >= 1
        assert "M-later" in cluster.text("message", "timed")
    sent = json.loads(cluster.text(
        "message", "send", "-t", "M-later", "-p", "then", "--at", "2020-01-01T00:00:00Z"))
    assert "recallHandle" not in sent                          # it is delivered
    for wrong in (("--in", "soon"), ("--at", "soon"), ("--in", "1s", "--at", "now"),
                  ("--in", "41d")):
        assert cluster.refused("message", "send", "-t", "M-later", "-p", "x", *wrong)[0] != 0
