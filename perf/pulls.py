"""
What filters and waiting pulls cost, through the whole pull path of a broker of its own.

    python -m perf.pulls [tags] [sql] [idle] [wake] [cold]         (all of them by default)

tags   entries/s that a core of the serving process scans, for a tag that one in 100 messages has
sql    messages/s that a core looks at for an expression of three comparisons, one in 100 passing
idle   CPU of all broker processes while 5,000 pulls wait at 5,000 queues, percent of a core
wake   send to answer, for a pull that waits beside those 5,000
cold   latency of pulls of new messages while old ones are read from the disk beside them
"""
from __future__ import annotations

import argparse
import contextlib
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mqcore.bench.control import Target, find_target
from mqcore.bench.cpu import CpuMeter, cpu_seconds
from mqcore.bench.load import EndToEndOptions, Span, end_to_end
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import decode, encode, request
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import BatchItem, encode_batch
from tests.pull.puller import HAS_SUBSCRIPTION, SUSPENDS, Puller, next_offset
from tests.support.cold_files import make_cold
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import send_fields

ONE_IN = 100
MESSAGES = 400_000
SCANNED = 800                   # entries that one pull looks at
ROUNDS = 8                      # over the whole queue
WINDOW = 32                     # pulls under way
HELD_TOPICS, HELD_QUEUES = 50, 100
HELD_CONNECTIONS = 50
IDLE_S = 20.0
SETTLE_S = 25.0                 # two checkpoints: thousands of new queue files are written
WAKE_RATE, WAKE_S = 500.0, 10.0
EXPRESSION = "price > 100 AND price <= 200 AND color = 'blue'"


def serving_pids(broker: MqcoreProcess) -> list[int]:
    return [pid for pid in broker.family()
            if b"pull-serving" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def message(number: int) -> BatchItem:
    """Eight properties; tag, and the expression's answer, by `number` modulo ONE_IN."""
    wanted = number % ONE_IN == 7
    properties = {
        "UNIQ_KEY": f"7F0000010A2C18B4AAC2{number:012d}", "KEYS": f"order-{number}",
        "TAGS": f"t{number % ONE_IN}", "region": "eu", "price": "150" if wanted else "90",
        "color": "blue" if number % 2 else "red", "shop": "4711", "WAIT": "true",
    }
    return BatchItem(body=b"x" * 100, properties=properties)


def fill(puller: Puller, topic: str) -> None:
    """MESSAGES messages in queue 0, by batches of ONE_IN."""
    puller.topic(topic, 1)
    body = encode_batch(message(number) for number in range(ONE_IN))
    fields = send_fields(topic, properties=encode_properties({"WAIT": "true"}), batch=True)
    sent = 0
    for first in range(0, MESSAGES // ONE_IN, WINDOW):
        opaques = []
        for _ in range(min(WINDOW, MESSAGES // ONE_IN - first)):
            command = request(RequestCode.SEND_BATCH_MESSAGE, fields, body)
            puller.send(encode(command))
            opaques.append(command.opaque)
        for opaque in opaques:
            answer = puller.answer_to(opaque)
            assert answer.code == 0, answer.remark
            sent += ONE_IN
    wait_until(lambda: puller.queue_end(topic, 0) >= sent, "all messages readable", 60)


def scan_rate(broker: MqcoreProcess, topic: str, **fields: object) -> dict[str, float]:
    """Pull the whole queue ROUNDS times, WINDOW pulls under way; per CPU second of serving."""
    with Puller(broker.broker_addr) as puller:
        fill(puller, topic)
        assert puller.pull(topic, **fields).code == 0
        frames = [encode(request(RequestCode.PULL_MESSAGE, puller.fields(
            topic, queueOffset=offset, maxMsgNums=32, **fields)))
            for offset in range(0, MESSAGES, SCANNED)]
        (pid,) = serving_pids(broker)
        cpu, began = cpu_seconds(pid), time.monotonic()
        found = 0
        for _ in range(ROUNDS):
            found += _pull_all(puller, frames)
        cpu, seconds = cpu_seconds(pid) - cpu, time.monotonic() - began
    entries = ROUNDS * MESSAGES
    assert found == entries, f"{found} entries were passed, expected {entries}"
    return {"entries per s and core": entries / cpu, "entries per s": entries / seconds,
            "ns per entry": 1e9 * cpu / entries}


def _pull_all(puller: Puller, frames: list[bytes]) -> int:
    """Every frame once; how many entries the answers went over."""
    passed = waiting = 0
    for number, frame in enumerate(frames):
        puller.send(frame)
        waiting += 1
        while waiting >= WINDOW or (number == len(frames) - 1 and waiting):
            answer = decode(puller.receive_frame()[4:])
            assert answer.code == 0, answer.remark
            offset = int((answer.ext or {})["nextBeginOffset"] or 0)
            passed += SCANNED if offset % SCANNED == 0 else offset % SCANNED
            waiting -= 1
    return passed


def tags(folder: Path) -> dict[str, float]:
    with mqcore_up(folder, {"processes.serving_count": 1}) as broker:
        return scan_rate(broker, "Tags", subscription="t7")


def sql(folder: Path) -> dict[str, float]:
    settings: dict[str, object] = {
        "processes.serving_count": 1, "broker.property_filter_enable": True}
    with mqcore_up(folder, settings) as broker:
        return scan_rate(broker, "Sql", subscription=EXPRESSION, expressionType="SQL92")


@contextlib.contextmanager
def held(broker: MqcoreProcess) -> Iterator[int]:
    """Pulls that wait at HELD_TOPICS * HELD_QUEUES queues, by HELD_CONNECTIONS connections."""
    with contextlib.ExitStack() as stack:
        pullers = [stack.enter_context(Puller(broker.broker_addr))
                   for _ in range(HELD_CONNECTIONS)]
        queues = [(f"Held{number}", queue_id)
                  for number in range(HELD_TOPICS) for queue_id in range(HELD_QUEUES)]
        for number in range(HELD_TOPICS):
            pullers[0].topic(f"Held{number}", HELD_QUEUES)
        for topic, queue_id in queues:
            pullers[0].message(topic, queue_id)
        for topic, queue_id in queues:
            wait_until(lambda: pullers[0].queue_end(topic, queue_id) == 1, "a message readable")  # noqa: B023
        for number, (topic, queue_id) in enumerate(queues):
            pullers[number % HELD_CONNECTIONS].ask_to_pull(
                topic, queueId=queue_id, queueOffset=1, suspendTimeoutMillis=600_000,
                sysFlag=HAS_SUBSCRIPTION | SUSPENDS)
        time.sleep(SETTLE_S)                       # new files go to the disk
        assert all(puller.silent_for(1e-3) for puller in pullers), "a pull was answered"
        yield len(queues)


def idle(folder: Path) -> dict[str, float]:
    with mqcore_up(folder) as broker, held(broker) as count:
        meter = CpuMeter([broker.pid])
        meter.start()
        time.sleep(IDLE_S)
        with_held = 100 * meter.read() / IDLE_S
    with mqcore_up(folder / "empty") as broker:
        time.sleep(2.0)
        meter = CpuMeter([broker.pid])
        meter.start()
        time.sleep(IDLE_S)
        without = 100 * meter.read() / IDLE_S
    return {"held pulls": count, "CPU in percent of a core": with_held,
            "the same without held pulls": without}


def wake(folder: Path) -> dict[str, float]:
    with mqcore_up(folder) as broker, held(broker) as count:
        target: Target = find_target("Wake", broker=broker.broker_addr, namesrv=None, queues=1)
        report = end_to_end(target, EndToEndOptions(
            Span(seconds=WAKE_S, warmup=200), rate=WAKE_RATE, producers=1, consumers=1,
            group=f"wake_{secrets.token_hex(4)}"))
        return {"held pulls": count, "messages": report.items,
                **{f"{name} us": value for name, value in report.latency_us.items()}}


def cold(folder: Path) -> dict[str, float]:
    """A hot consumer's round trip while another reads 120 MB that are not in the page cache."""
    settings: dict[str, object] = {
        "processes.serving_count": 1, "store.segment_size_bytes": 16 << 20}
    with mqcore_up(folder, settings) as broker, Puller(broker.broker_addr) as old, Puller(
            broker.broker_addr) as hot:
        old.topic("Old", 1)
        hot.topic("Hot", 1)
        old.batch("Old", [{"n": "1"}] * 2_000, b"x" * 60_000)
        hot.batch("Hot", [{"n": "1"}] * 10)
        quiet = [_round_trip(hot) for _ in range(500)]
        make_cold(broker.store)
        busy, at, read = [], 0, 0
        while at < 1_300:
            opaque = old.ask_to_pull("Old", queueOffset=at)
            while (answer := _ready(old, opaque)) is None:
                busy.append(_round_trip(hot))
            busy.append(_round_trip(hot))
            at = next_offset(answer)
            read += len(answer.body)
    return {"MB read": read / 1e6, "hot pulls beside": len(busy),
            "quiet p99 us": _percentile(quiet, 99), "quiet max us": max(quiet),
            "busy p99 us": _percentile(busy, 99), "busy max us": max(busy)}


def _ready(puller: Puller, opaque: int):                    # type: ignore[no-untyped-def]
    try:
        return puller.answer_to(opaque, 1e-6)
    except TimeoutError:
        return None


def _round_trip(puller: Puller) -> float:
    began = time.perf_counter()
    assert puller.pull("Hot", maxMsgNums=1).code == 0
    return 1e6 * (time.perf_counter() - began)


def _percentile(values: list[float], percent: float) -> float:
    return sorted(values)[min(int(len(values) * percent / 100), len(values) - 1)]


MEASURES = {"tags": tags, "sql": sql, "idle": idle, "wake": wake, "cold": cold}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="*", help=", ".join(MEASURES) + "; all by default")
    wanted: list[str] = parser.parse_args().measures or list(MEASURES)
    for name in wanted:
        if name not in MEASURES:
            parser.error(f"{name}: expected one of {', '.join(MEASURES)}")
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="mqcore-pulls-") as folder:
            found = MEASURES[name](Path(folder))
        print(f"{name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in found.items()),
              flush=True)


if __name__ == "__main__":
    main()
