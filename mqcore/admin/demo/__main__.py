"""
The demo: `make demo`, or `python -m mqcore.admin.demo`.

Starts a broker, lets two different clients send orders and a group of two consumers read them,
kills one of the consumers and then the broker's writer, and compares what was acknowledged with
what was consumed. Ends by itself: status 0 when every claim held, else 1.
"""
from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click

from mqcore.admin.demo.clients import RESUME
from mqcore.admin.demo.ledger import Balance, Entry, balance
from mqcore.admin.demo.orders import order_events
from mqcore.admin.demo.processes import Actor, Broker, DemoError, Writer, role, wait_until

TOPIC = "ORDERS"
GROUP = "billing"
RATE = 250                    # orders a second of each producer: slow enough to watch
KILL_CONSUMER_AT = 0.3        # of the first client's orders acknowledged
KILL_WRITER_AT = 0.6
HOLD_AT = 0.8                 # the rest is sent after that kill, however long all took until then
GO_CLIENTS = ("interop-go-*/finished",)      # below the test cache, where `make test` builds it


def find_go_client() -> Path | None:
    """The Go test program (rocketmq-client-go), when the tests have built it on this machine."""
    cache = Path(os.environ.get("MQCORE_TEST_CACHE", Path.home() / ".cache" / "mqcore-test"))
    built = sorted((marker for pattern in GO_CLIENTS for marker in cache.glob(pattern)),
                   key=lambda marker: marker.stat().st_mtime)
    program = built[-1].parent / "client" if built else None
    return program if program is not None and os.access(program, os.X_OK) else None


class Story:
    """Says what happens, when it happens, and keeps what was claimed."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.failed: list[str] = []

    def say(self, text: str) -> None:
        first, *rest = text.splitlines()
        print(f"{time.monotonic() - self._began:6.2f} s  {first}", flush=True)
        for line in rest:
            print(f"          {line}", flush=True)

    def claim(self, text: str, holds: bool) -> None:
        print(f"   {'ok' if holds else 'NO'}     {text}", flush=True)
        if not holds:
            self.failed.append(text)


class Demo:
    """The acts, in order; `close` ends what still runs, whatever happened."""

    def __init__(self, folder: Path, orders: int, go_client: Path | None) -> None:
        self._folder = folder
        self._orders = orders
        self._go_client = go_client
        self._story = Story()
        self._actors: list[Actor] = []
        self._sent: list[str] = []

    def run(self) -> list[str]:
        """Returns the claims that did not hold. Raises DemoError."""
        self._start_broker()
        self._start_consumers()
        self._start_producers()
        self._kill_consumer()
        self._kill_writer()
        self._finish_sending()
        self._settle()
        self._stop_broker()
        return self._story.failed

    def close(self) -> None:
        for actor in reversed(self._actors):
            if actor.running:
                actor.stop()

    def _started(self, actor: Writer) -> Writer:
        self._actors.append(actor)
        return actor

    # -- the acts ----------------------------------------------------------------------------------

    def _start_broker(self) -> None:
        self._broker = Broker(self._folder)
        self._actors.append(self._broker)
        took = self._broker.wait_ready()
        processes = textwrap.fill(
            ", ".join(f"{name} {one['pid']}" for name, one in self._broker.processes().items()),
            84, break_on_hyphens=False)
        self._story.say(
            f"A broker with a name server is ready, {took:.2f} s after its start.\n"
            f"broker {self._broker.address}, name server {self._broker.namesrv}, flush=async\n"
            f"{processes}")

    def _start_consumers(self) -> None:
        first = self._started(role(
            "first-order", "produce", self._folder, namesrv=self._broker.namesrv, topic=TOPIC,
            source="first", count=1, rate=RATE))
        first.finish()
        self._first = first
        self._sent.append("first-00000")
        self._consumers = [
            self._started(role(f"{GROUP}-{number}", "consume", self._folder, topic=TOPIC,
                               namesrv=self._broker.namesrv, group=GROUP))
            for number in (1, 2)]
        took = self._wait("two consumers that share the queues evenly", self._is_shared)
        self._story.say(
            f"The first order made the topic {TOPIC}; two consumers formed the group {GROUP} in "
            f"{took:.2f} s.\n"
            + "\n".join(f"{one.name} (pid {one.pid}) reads queues {queues_of(one)}"
                        for one in self._consumers))

    def _is_shared(self) -> bool:
        one, other = (queues_of(consumer) for consumer in self._consumers)
        return bool(one) and len(one) == len(other) and not set(one) & set(other)

    def _start_producers(self) -> None:
        common = {"namesrv": self._broker.namesrv, "topic": TOPIC, "rate": RATE}
        self._python = self._started(role(
            "shop-a", "produce", self._folder, source="a", count=self._orders,
            hold_at=int(HOLD_AT * self._orders), **common))
        self._sent += [event.id for event in order_events("a", self._orders)]
        if self._go_client is None:
            self._other = self._started(role(
                "shop-b", "produce-binary", self._folder, source="b", count=self._orders, **common))
            what = "bare frames with binary headers"
        else:
            self._other = self._started(self._start_go(self._go_client))
            what = "rocketmq-client-go, unmodified"
        self._sent += [event.id for event in order_events("b", self._orders)]
        self._story.say(
            f"Two shops send {2 * self._orders} order events.\n"
            f"shop-a: mqcore.client, JSON headers, {RATE} a second (pid {self._python.pid})\n"
            f"shop-b: {what} (pid {self._other.pid})")

    def _start_go(self, program: Path) -> Writer:
        file = self._folder / "shop-b.json"
        file.write_text(json.dumps([
            {"mode": "sync", "tags": event.event, "keys": event.id, "properties": {"mid": event.id},
             "body": base64.b64encode(event.body).decode()}
            for event in order_events("b", self._orders)]), encoding="utf-8")
        return Writer("shop-b", [
            str(program), "produce", "--namesrv", self._broker.namesrv, "--topic", TOPIC,
            "--group", "demo_shop_b", "--file", str(file)], self._folder)

    def _kill_consumer(self) -> None:
        self._wait_for_orders(KILL_CONSUMER_AT)
        victim, survivor = self._consumers
        victim.kill()
        killed = time.monotonic()
        lost = queues_of(victim)
        acked = {entry.id for entry in self._acknowledged()}
        self._wait("the other consumer with all queues",
                   lambda: set(lost) <= set(queues_of(survivor)))
        taken = time.monotonic() - killed
        self._wait("all orders of before the kill, consumed", lambda: self._is_consumed(acked))
        self._story.say(
            f"kill -9 {victim.pid}: {victim.name} is gone. {len(acked)} orders were acknowledged, "
            f"{len(victim.of('got'))} of them read by it.\n"
            f"{survivor.name} had its queues {lost} after {taken:.2f} s and reads "
            f"{queues_of(survivor)} now.\n"
            f"{time.monotonic() - killed:.2f} s after the kill every one of the {len(acked)} "
            "orders was consumed.")

    def _kill_writer(self) -> None:
        self._wait_for_orders(KILL_WRITER_AT)
        before = self._broker.processes()
        killed = time.time()
        os.kill(before["writer"]["pid"], 9)
        self._python.process.send_signal(RESUME)

        def answers() -> list[float]:
            return [line["at"] for line in self._python.of("acked") if line["at"] > killed]

        self._wait("a new writer", lambda: self._broker.processes()["writer"]["starts"]
                   > before["writer"]["starts"])
        count = len([line for line in self._python.of("acked") if line["at"] <= killed])
        self._wait("acknowledgements of the new writer", lambda: len(answers()) > 10)
        after = self._broker.processes()
        times = sorted([killed, *answers()])
        gap = max(later - earlier for earlier, later in itertools.pairwise(times))
        self._story.say(
            f"kill -9 {before['writer']['pid']}: the writer is gone while shop-a sends "
            f"({count} of its orders are acknowledged).\n"
            f"Writer {after['writer']['pid']} took over; the longest time without an "
            f"acknowledgement was {gap:.3f} s.\n"
            + "\n".join(self._failures()))
        others = {name: process["pid"] for name, process in before.items() if name != "writer"}
        self._story.claim(
            "the other processes of the broker went on",
            others == {name: after[name]["pid"] for name in others})

    def _failures(self) -> list[str]:
        """What the shops were told for sends that the kill caught on their way."""
        why = Counter(line["why"].rpartition(" (")[0] for one in (self._python, self._other)
                      for line in one.of("failed"))
        if not why:
            return ["No send was on its way to it."]
        return [line for text, count in why.items()
                for line in (f"Sent again, {count} x: the answer was", f"  {text}")]

    def _wait_for_orders(self, share: float) -> None:
        wanted = int(share * self._orders)
        self._wait(f"{wanted} acknowledged orders of shop-a",
                   lambda: len(self._python.of("acked")) >= wanted or not self._python.running)

    def _finish_sending(self) -> None:
        for producer in (self._python, self._other):
            producer.finish()
        acked = {entry.id for entry in self._acknowledged()}
        self._wait("all acknowledged orders, consumed",
                   lambda: self._is_consumed(acked) or not self._consumers[1].running)
        self._story.say("Both shops are done, and the consumer has caught up.")

    def _settle(self) -> None:
        shares = [len(entries_of(one)) for one in (self._first, self._python, self._other)]
        found = balance(self._sent, self._acknowledged(), self._delivered())
        self._story.claim(
            f"every order was acknowledged: {found.acknowledged} of {len(self._sent)} "
            f"(shop-a {shares[0] + shares[1]}, shop-b {shares[2]})",
            found.acknowledged == len(self._sent))
        self._story.claim("every acknowledged order was consumed: "
                          f"{len(found.missing)} are missing", not found.missing)
        self._story.claim("each came from the queue and offset that its acknowledgement named: "
                          f"{len(found.misplaced)} did not", not found.misplaced)
        self._story.claim(f"nothing came that nobody sent: {len(found.unknown)} did",
                          not found.unknown)
        self._explain(found)

    def _explain(self, found: Balance) -> None:
        print(f"          {found.delivered} deliveries; {found.redelivered} of them again, because "
              "the killed consumer had not\n"
              f"          committed them; {found.stored_twice} because a send whose answer the "
              "kill swallowed was repeated.\n"
              "          (At least once, as RocketMQ promises: consumers must expect both.)",
              flush=True)

    def _stop_broker(self) -> None:
        self._consumers[1].stop()
        segments = self._broker.segments()
        processes = [process["pid"] for process in self._broker.processes().values()]
        began = time.monotonic()
        code = self._broker.stop()
        self._story.say(f"The broker was asked to stop and ended after "
                        f"{time.monotonic() - began:.2f} s.")
        left = [pid for pid in processes if Path(f"/proc/{pid}").exists()]
        self._story.claim("it ended with status 0 and left no process and no shared memory",
                          code == 0 and bool(segments) and not left
                          and not self._broker.segments())

    # -- what was seen -----------------------------------------------------------------------------

    def _wait(self, what: str, condition: Callable[[], bool]) -> float:
        """Seconds until it held. Raises DemoError when nobody writes anything for too long."""
        return wait_until(what, condition, lambda: [actor.said() for actor in self._actors])

    def _is_consumed(self, acked: set[str]) -> bool:
        return acked <= {line["got"] for one in self._consumers for line in one.of("got")}

    def _acknowledged(self) -> list[Entry]:
        return [entry for one in (self._first, self._python, self._other)
                for entry in entries_of(one)]

    def _delivered(self) -> list[Entry]:
        return [Entry(line["got"], (line["queue"], line["offset"]))
                for consumer in self._consumers for line in consumer.of("got")]


def entries_of(producer: Writer) -> list[Entry]:
    """What a producer was told: ours says `acked`, the Go program `id`."""
    entries = [Entry(line["acked"], (line["queue"], line["offset"]))
               for line in producer.of("acked")]
    return entries + [Entry(line["id"], (line["queueId"], line["offset"]))
                      for line in producer.of("id")]


def queues_of(consumer: Writer) -> list[int]:
    """The queues that a consumer said last that it has."""
    said = consumer.of("queues")
    return said[-1]["queues"] if said else []


@click.command()
@click.option("--orders", default=1500, show_default=True, type=click.IntRange(100, 100_000),
              help="Order events of each of the two clients.")
@click.option("--go/--no-go", default=True, show_default=True,
              help="Send half of them with the Go client, when the tests have built it.")
@click.option("--keep", is_flag=True, help="Keep the folder with the store and all logs.")
def main(orders: int, go: bool, keep: bool) -> None:
    """A broker, two clients, a group of two consumers, and two kills; in under a minute."""
    folder = Path(tempfile.mkdtemp(prefix="mqcore-demo-"))
    demo = Demo(folder, orders, find_go_client() if go else None)
    print("mqcore demo: what becomes of acknowledged orders when processes are killed\n",
          flush=True)
    try:
        failed = demo.run()
    except DemoError as error:
        failed = [str(error)]
        print(f"\nThe demo cannot go on: {error}", flush=True)
    finally:
        demo.close()
        if keep:
            print(f"\nStore and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print("\nEvery claim held." if not failed else f"\nNot held: {len(failed)}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
