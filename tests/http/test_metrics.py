"""A scrape of shared memory without a broker: bounds, names, and its cost."""
from __future__ import annotations

import json
import time
from array import array
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from docs import metrics as document
from mqcore.broker.settings.load import load
from mqcore.figures import FIGURES, LATENCIES
from mqcore.http import metrics, text
from mqcore.http.look import Bounded, Look, Watcher
from mqcore.shm.pull_counts import PullCountPen
from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment
from mqcore.shm.tables import TableWriter
from tests.http.asking import values
from tests.store.harness import new_segment

TOPICS = 10_000
GROUPS = 2_000
TOPICS_OF_ONE = 5                  # of a group
QUEUES_OF_ONE = 4
SCRAPE_S_MAX = 0.050               # of a processor
TRIES = 20


class Filled(QueueLives):
    """As if each queue had messages: its number, plus one. Names are read from memory."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        counts = [[number + 1, 0, 0] for number in range(self.queue_count)]
        self._counts = array("q", [word for row in counts for word in row]).tobytes()

    def counts(self) -> bytes:
        super().counts()
        return self._counts


def filled(topics: list[str], queues: int = 1, store: Path | None = None,
           **limits: int) -> Watcher:
    made = new_segment(queues=max(2048, len(topics) * queues), groups=1024, subscriptions=65536)
    lives = QueueLives(made)
    for topic in topics:
        for queue in range(queues):
            lives.set_restart(topic, queue, 0)
    settings = load(None, {}, [
        *(f"http.{key}={value}" for key, value in limits.items()),
        *([f"store.path={store}"] if store is not None else [])])
    watcher = Watcher(settings, made)
    watcher.lives = Filled(made)
    return watcher


def write_offsets(watcher: Watcher, table: dict[str, dict[int, int]]) -> None:
    """The coordinator's file of offsets."""
    folder = watcher.settings.config_dir
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}),
                                                encoding="utf-8")


def scraped(watcher: Watcher, content_type: str = text.PLAIN) -> str:
    return "".join(metrics.scrape(Look(watcher), metrics.METRICS, content_type))


def test_topics_beyond_the_limit_are_one_sum_and_are_counted() -> None:
    watcher = filled([f"T{number}" for number in range(10)], metrics_topics_max=3)
    found = list(plain_families(scraped(watcher)))
    name = "rocketmq_messages_in_total"
    assert [values(found, name, topic=f"T{number}") for number in range(4)] == [[1], [2], [3], []]
    assert values(found, name, topic="_other") == [4 + 5 + 6 + 7 + 8 + 9 + 10]
    assert values(found, "mqcore_metrics_folded", of="topics") == [7]


def test_pairs_of_group_and_topic_have_a_limit_too() -> None:
    watcher = filled(["T"], metrics_groups_max=2)
    writer = TableWriter(watcher.segment)
    pen = PullCountPen(watcher.segment, 0)
    for number in range(5):
        writer.publish_group(f"G{number}")
        assert pen.add(0, number, messages=10 ** number, size=100)
    found = list(plain_families(scraped(watcher)))
    name = "rocketmq_messages_out_total"
    assert [values(found, name, consumer_group=f"G{number}") for number in range(3)] == [
        [1], [10], []]
    assert values(found, name, consumer_group="_other", topic="_other") == [11100]
    assert values(found, "rocketmq_throughput_out_total", consumer_group="_other") == [300]
    assert values(found, "mqcore_metrics_folded", of="groups") == [3]


def test_who_is_new_has_the_place_of_who_has_gone() -> None:
    bounded = Bounded(2, "_other")
    bounded.admit(dict.fromkeys("abc"))
    assert bounded.summed([("a", 1), ("b", 2), ("c", 4)]) == {"a": 1, "b": 2, "_other": 4}
    bounded.admit(dict.fromkeys("bcd"))
    assert bounded.summed([("b", 2), ("c", 4), ("d", 8)]) == {"b": 2, "c": 4, "_other": 8}
    assert bounded.folded == 1


def test_a_pair_of_a_deleted_topic_gives_its_place_away() -> None:
    watcher = filled(["gone", "here"], metrics_groups_max=1)
    TableWriter(watcher.segment).publish_group("G")
    pen = PullCountPen(watcher.segment, 0)
    for queue in range(2):
        assert pen.add(queue, 0, messages=5, size=100)
    assert Look(watcher).messages_out() == {("G", "gone"): 5, ("_other", "_other"): 5}

    class Deleted(Filled):
        """The first topic has no messages any more."""

        def counts(self) -> bytes:
            return bytes(8) + super().counts()[8:]

    watcher.lives = Deleted(watcher.segment)
    assert Look(watcher).messages_out() == {("G", "here"): 5, ("_other", "_other"): 5}


def test_a_topic_that_comes_during_a_scrape_is_in_the_next_one() -> None:
    watcher = filled(["%DLQ%first"])
    look = Look(watcher)
    assert look.messages_in() == {"%DLQ%first": 1}
    QueueLives(watcher.segment).set_restart("%DLQ%second", 0, 0)
    watcher.learn()                          # as what pulls handed out does
    assert look.messages_in() == {"%DLQ%first": 1}
    assert look.bytes_in() == {"%DLQ%first": 0}
    assert look.dead_letters() == {"first": 1}
    watcher.lives = Filled(watcher.segment)
    assert Look(watcher).dead_letters() == {"first": 1, "second": 2}


def test_the_sum_of_the_others_never_falls() -> None:
    """Prometheus takes a counter that fell for one that began again at 0."""
    bounded = Bounded(1, "_other")

    def look(**values: int) -> dict[str, float]:
        bounded.admit(values)
        return bounded.counted("messages", values.items())

    assert look(a=1, b=20, c=300) == {"a": 1, "_other": 320}
    assert look(a=2, b=21, c=300) == {"a": 2, "_other": 321}
    assert look(a=2, b=21) == {"a": 2, "_other": 321}                  # c is deleted
    assert look(b=22, d=4000) == {"b": 22, "_other": 4321}             # b has the place of a
    assert look(b=22, d=4001) == {"b": 22, "_other": 4322}
    assert look(b=22, d=3) == {"b": 22, "_other": 4325}                # d was made again
    assert bounded.counted("messages", [("b", 22), ("d", 3)])["_other"] == 4325
    assert bounded.counted("bytes", [("b", 1), ("d", 5)]) == {"b": 1, "_other": 5}


@pytest.mark.parametrize("value", [
    'quote " and \\ backslash', "line\nbreak", 'x"} 1\nforged{a="b', "\r\t\x00\x1b[31m", "\\n", "",
    "\N{SNOWMAN}\N{RIGHT-TO-LEFT OVERRIDE}\N{LINE SEPARATOR}", "{}[],=#", "T" * 4096])
@pytest.mark.parametrize("content_type", [text.PLAIN, text.OPEN_METRICS])
def test_a_label_comes_back_as_it_was(value: str, content_type: str) -> None:
    parse = text_string_to_metric_families if content_type == text.OPEN_METRICS else plain_families
    written = text.head("a_total", "counter", "Help.", content_type) + "".join(
        text.samples("a_total", 'b="c"', ("topic",), [((value,), 3)])) + text.end(content_type)
    (family,) = parse(written)
    (sample,) = family.samples
    assert (sample.name, sample.labels, sample.value) == (
        "a_total", {"b": "c", "topic": value}, 3)


def test_every_metric_has_one_name_and_every_figure_a_metric() -> None:
    table = (*metrics.METRICS, *metrics.QUEUES)
    assert len({metric.name for metric in table}) == len(table)
    assert all((metric.kind == "counter") == metric.name.endswith("_total") for metric in table)
    of_figures = sum(metric.labels == ("process",) for metric in table) - len(
        [metric for metric in table if metric.name.startswith("mqcore_process_")])
    assert of_figures == len(FIGURES) - len(metrics.LEFT_OUT) + len(LATENCIES)


def test_the_document_has_the_table_as_it_is() -> None:
    """`make settings` writes it."""
    written = document.DOCUMENT.read_text(encoding="utf-8")
    assert document.document(written) == written


def test_dead_letters_are_told_apart_where_their_topics_are_not() -> None:
    watcher = filled(["T", "%DLQ%a", "%DLQ%b"], metrics_topics_max=1)
    found = list(plain_families(scraped(watcher)))
    name = "rocketmq_send_to_dlq_messages_total"
    assert {group: values(found, name, consumer_group=group) for group in "ab"} == {
        "a": [2], "b": [3]}


def test_a_scrape_of_ten_thousand_topics_and_two_thousand_groups_is_short(tmp_path: Path) -> None:
    """The quickest of some: others use the machine, too. The first one reads all names."""
    topics = [f"topic-{number}" for number in range(TOPICS)]
    watcher = filled(topics, QUEUES_OF_ONE, store=tmp_path)
    pairs = [(topics[(group * TOPICS_OF_ONE + number) % TOPICS], f"group-{group}")
             for group in range(GROUPS) for number in range(TOPICS_OF_ONE)]
    write_offsets(watcher, {f"{topic}@{group}": dict.fromkeys(range(QUEUES_OF_ONE), 0)
                            for topic, group in pairs})
    took = []
    for _ in range(TRIES):
        began = time.thread_time()
        body = scraped(watcher)
        took.append(time.thread_time() - began)
        if min(took[1:], default=1.0) < SCRAPE_S_MAX:
            break
    print(f"first scrape {took[0] * 1000:.1f} ms, then {min(took[1:]) * 1000:.1f} ms")
    assert body.count("\nrocketmq_messages_in_total{") == 1001
    assert body.count("rocketmq_consumer_lag_messages{") == 5001
    assert min(took[1:]) < SCRAPE_S_MAX
