"""The paths: what a client asks for, and how often."""
from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mqcore.net.transport.tls_context import self_signed
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, decode, encode, next_opaque, request
from mqcore.wire.properties import encode_properties
from perf.acl import ACCOUNT, RULES
from perf.ledger.bench import HOT, Bench, rows
from perf.ledger.counts import Counts, LedgerError, look, private_bytes
from perf.ledger.table import Table
from tests.acl import requests as signing
from tests.replication.pairs import NAME, slave_up
from tests.support.mqcore_process import MQCORE, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import careless
from tests.wire_live.peer import Peer, pull_fields, send_fields
from tests.wire_live.state import State

TOPIC = "Ledger"
QUEUES = 4
BODY = bytes(range(128))
TAGGED = encode_properties({"TAGS": "TagA"})
MANY, BATCH = 2_400, 32
SETTLED_S = 0.7                        # a connection is an old one then
CLIENT_MESSAGES = 500
EVERYONE = (*HOT, "coordinator")
COPIES = ("copied", "allocations")     # independent of the order of processes


def send_command(number: int, topic: str = TOPIC, properties: str = TAGGED) -> Command:
    return request(Code.SEND_MESSAGE_V2,
                   send_fields(topic, queue_id=number % QUEUES, properties=properties), BODY)


def exchange(peer: Peer, command: Command) -> Command:
    peer.send(encode(command))
    answer = peer.answer_to(command.opaque)
    if answer.code:
        raise LedgerError(f"{command.code} was answered {answer.code}: {answer.remark}")
    return answer


def sends(peer: Peer) -> Callable[[int], None]:
    def run(count: int) -> None:
        for number in range(count):
            exchange(peer, send_command(number))
    return run


def bursts(peers: list[Peer], each: int) -> Callable[[int], None]:
    """`each` sends of each peer at a time, then all of their answers."""
    def run(count: int) -> None:
        for _ in range(count // (each * len(peers))):
            for peer in peers:
                peer.send(b"".join(encode(send_command(number)) for number in range(each)))
            for peer in peers:
                for _ in range(each):
                    if decode(peer.receive_frame()[4:]).code:
                        raise LedgerError("a send of a burst was refused")
    return run


def batches(peer: Peer) -> Callable[[int], None]:
    """Batches of BATCH messages (remoting.md 4.1.4)."""
    properties = TAGGED.encode()
    one = b"".join((
        (20 + len(BODY) + 2 + len(properties)).to_bytes(4, "big"), bytes(4),
        bytes(4), bytes(4), len(BODY).to_bytes(4, "big"), BODY,
        len(properties).to_bytes(2, "big"), properties))
    body = one * BATCH

    def run(count: int) -> None:
        for number in range(count):
            exchange(peer, request(Code.SEND_BATCH_MESSAGE, send_fields(
                TOPIC, queue_id=number % QUEUES, batch=True), body))
    return run


def pulls(peer: Peer) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            exchange(peer, request(Code.PULL_MESSAGE, pull_fields(TOPIC, count=BATCH)))
    return run


def held_pulls(peer: Peer, consumer: Peer, end: int) -> Callable[[int], None]:
    """A pull waits, a message is sent, the pull is answered: one message from end to end."""
    offset = end

    def run(count: int) -> None:
        nonlocal offset
        for _ in range(count):
            pull = request(Code.PULL_MESSAGE, pull_fields(
                TOPIC, queue_id=0, offset=offset, sys_flag=6, suspend_ms=15_000))
            consumer.send(encode(pull))
            exchange(peer, send_command(0))
            answer = consumer.answer_to(pull.opaque)
            if answer.code:
                raise LedgerError(f"a held pull was answered {answer.code}: {answer.remark}")
            offset = int((answer.ext or {})["nextBeginOffset"] or 0)
    return run


def transactions(peer: Peer) -> Callable[[int], None]:
    """A half message, and its commit."""
    half = encode_properties({"TAGS": "TagA", "TRAN_MSG": "true", "PGROUP": "PG"})

    def run(count: int) -> None:
        for number in range(count):
            answer = exchange(peer, request(Code.SEND_MESSAGE_V2, send_fields(
                TOPIC, queue_id=number % QUEUES, properties=half, sys_flag=4), BODY))
            ext = answer.ext or {}
            end = request(Code.END_TRANSACTION, {
                "producerGroup": "PG", "tranStateTableOffset": ext["queueOffset"],
                "commitLogOffset": str(int((ext["msgId"] or "")[-16:], 16)),
                "commitOrRollback": "8", "fromTransactionCheck": "false",
                "msgId": ext["msgId"], "transactionId": ext["msgId"]})
            exchange(peer, end)
    return run


def delayed(peer: Peer, state: State) -> Callable[[int], None]:
    """Messages of a second's delay, until they are delivered."""
    late = encode_properties({"TAGS": "TagA", "DELAY": "1"})

    def run(count: int) -> None:
        before = sum(state.queue_end("Late", queue) for queue in range(QUEUES))
        for number in range(count):
            exchange(peer, send_command(number, "Late", late))
        wait_until(lambda: sum(state.queue_end("Late", queue) for queue in range(QUEUES))
                   == before + count, "all delayed messages")
    return run


def heartbeats(peer: Peer) -> Callable[[int], None]:
    def run(count: int) -> None:
        for number in range(count):
            body = {"clientID": "ledger@1", "producerDataSet": [{"groupName": "PG"}],
                    "consumerDataSet": [{
                        "groupName": "CG", "consumeType": "CONSUME_PASSIVELY",
                        "messageModel": "CLUSTERING", "consumeFromWhere":
                            "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                        "subscriptionDataSet": [{
                            "topic": TOPIC, "subString": "*", "classFilterMode": False,
                            "tagsSet": [], "codeSet": [], "subVersion": number,
                            "expressionType": "TAG"}]}]}
            exchange(peer, request(Code.HEART_BEAT, {}, fastjson.dumps(body)))
    return run


def newcomers(address: str) -> Callable[[int], None]:
    def run(count: int) -> None:
        for number in range(count):
            with Peer(address) as peer:
                exchange(peer, send_command(number))
    return run


def signed(peer: Peer) -> Callable[[int], None]:
    def run(count: int) -> None:
        for number in range(count):
            fields = {name: text for name, text in send_fields(
                TOPIC, queue_id=number % QUEUES, properties=TAGGED).items() if text is not None}
            command = signing.signed(Code.SEND_MESSAGE_V2, fields, ACCOUNT.access_key,
                                     ACCOUNT.secret_key, BODY)
            command.opaque = next_opaque()
            exchange(peer, command)
    return run


# -- brokers ---------------------------------------------------------------------------------------

def one_send(numbers: Path, folder: Path) -> Table:
    """Only the first path."""
    with mqcore_up(folder, program=MQCORE) as broker, State(broker.broker_addr) as state, (
            Peer(broker.broker_addr)) as peer:
        state.topic(TOPIC, QUEUES)
        time.sleep(SETTLED_S)
        exchange(peer, send_command(0))
        bench = Bench(broker, numbers, idle_seconds=1)
        bench.path("send, one in flight", MANY // 2, sends(peer))
        return bench.table


def plain(numbers: Path, folder: Path) -> Table:
    with mqcore_up(folder, program=MQCORE) as broker, State(broker.broker_addr) as state:
        state.topic(TOPIC, QUEUES)
        state.topic("Late", QUEUES)
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(Peer(broker.broker_addr)) for _ in range(9)]
            time.sleep(SETTLED_S)
            for peer in peers:         # each is an old one now
                exchange(peer, send_command(0))
            bench = Bench(broker, numbers)
            bench.idle()
            peer, consumer = peers[0], peers[1]
            bench.path("send, one in flight", MANY, sends(peer))
            bench.path("send, 8 x 32", 24 * 256, bursts(peers[:8], 32), figures=COPIES)
            bench.path("batch of 32", MANY // 4, batches(peer))
            bench.path("pull of 32", MANY, pulls(consumer), HOT[:1])
            wait_until(lambda: state.queue_end(TOPIC, 0) > 0, "a queue")
            bench.path("held pull, end to end", MANY, held_pulls(
                peer, consumer, settled_end(state)), (*HOT, "dispatcher"))
            bench.path("half and commit", MANY // 2, transactions(peer))
            bench.path("delayed", MANY // 4, delayed(peer, state), ("writer", "scheduler"),
                       figures=COPIES)
            bench.path("heartbeat", MANY // 4, heartbeats(peer), ("pull-serving-0", "coordinator"))
            bench.path("new connection and a send", MANY // 4, newcomers(broker.broker_addr),
                       figures=("copied", "allocations", "pages"))
        return bench.table | clients(broker.namesrv_addr, numbers)


def settled_end(state: State) -> int:
    """The end of a queue whose messages are all dispatched."""
    ends = [-1]

    def stands() -> bool:
        ends.append(state.queue_end(TOPIC, 0))
        return ends[-1] == ends[-2]

    wait_until(stands, "an end that stands")
    return ends[-1]


def with_tls(numbers: Path, folder: Path) -> Table:
    folder.mkdir()
    certificate = folder / "certificate.pem"
    certificate.write_bytes(self_signed("ledger"))
    with mqcore_up(folder, {"tls.certificate": certificate}, program=MQCORE) as broker, (
            State(broker.broker_addr)) as state, (
            Peer(broker.broker_addr, tls=careless())) as peer:
        state.topic(TOPIC, QUEUES)
        time.sleep(SETTLED_S)
        exchange(peer, send_command(0))
        bench = Bench(broker, numbers)
        bench.path("send by TLS", MANY, sends(peer))
        return bench.table


def with_accounts(numbers: Path, folder: Path) -> Table:
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(RULES)
    settings = {"acl.enable": True, "acl.folder": folder}
    with mqcore_up(folder, settings, program=MQCORE) as broker, Peer(broker.broker_addr) as peer:
        run = signed(peer)
        run(1)
        time.sleep(SETTLED_S)
        run(1)
        bench = Bench(broker, numbers)
        bench.path("send with an account", MANY, run)
        return bench.table


def with_slave(numbers: Path, folder: Path) -> Table:
    folder.mkdir()
    settings = {"broker.name": NAME, "replication.listen": True,
                "replication.role": "sync-master"}
    with mqcore_namesrv(folder / "names") as names, mqcore_up(
            folder / "master", settings, namesrv_addr=names.namesrv_addr,
            program=MQCORE) as master, slave_up(
            folder / "slave", names.namesrv_addr), Peer(master.broker_addr) as peer, (
            State(master.broker_addr)) as state:
        state.topic(TOPIC, QUEUES)
        wait_until(lambda: not asked(peer, send_command(0)).code, "a slave")
        time.sleep(SETTLED_S)
        exchange(peer, send_command(0))
        bench = Bench(master, numbers)
        bench.path("send to a slave too", MANY // 2, sends(peer), (*HOT, "ha-master"))
        return bench.table


def asked(peer: Peer, command: Command) -> Command:
    peer.send(encode(command))
    return peer.answer_to(command.opaque)


# -- the Python client, each role in a process of its own ------------------------------------------

def clients(namesrv_addr: str, numbers: Path) -> Table:
    found: Table = {}
    for role in ("producer", "consumer", "push", "reader"):
        said = subprocess.run(
            [sys.executable, "-m", "perf.ledger.client", role, namesrv_addr, str(CLIENT_MESSAGES),
             str(numbers)], capture_output=True, text=True, check=True)
        counted = fastjson.loads(said.stdout.splitlines()[-1].encode())
        modules = float(counted.pop("modules"))
        found |= rows(f"client: {role}", [("client", Counts(**counted))], COPIES)
        found[f"client: {role}", "client", "modules"] = modules
    return found


# -- a start ---------------------------------------------------------------------------------------

def modules(folder: Path) -> float:
    """How many modules all processes of a broker have imported until it is ready."""
    program = (sys.executable, "-X", "importtime", "-m", "mqcore.admin.cli")
    with mqcore_up(folder, program=program) as broker:
        return float(broker.output.read_text().count("import time:"))


def start(numbers: Path, folder: Path) -> Table:
    """The cost and the memory of an empty broker that is ready and idle."""
    with mqcore_up(folder, program=MQCORE) as broker:
        time.sleep(SETTLED_S)
        family = broker.family()
        counts = look(numbers, broker.pid)
        table = rows("start", [("supervisor", counts)], ("copied", "allocations"))
        table["start", "all", "pages"] = sum(look(numbers, pid).pages for pid in family)
        table["start", "all", "private"] = private_bytes(family) / 1024
    table["start", "all", "modules"] = modules(folder / "imports")
    return table


PATHS: dict[str, Callable[[Path, Path], Table]] = {
    "plain": plain, "tls": with_tls, "accounts": with_accounts, "slave": with_slave,
    "start": start}


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqcore-ledger-") as folder:
        yield Path(folder)
