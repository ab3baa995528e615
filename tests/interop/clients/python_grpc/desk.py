"""The official Python client at a desk: see tests/grpc/desk.py."""
import json
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

configuration = ClientConfiguration(sys.argv[1], Credentials())
got = {}
lock = threading.Lock()
simples = {}
producers = []


class Checker(TransactionChecker):
    def check(self, message):
        if message.body.endswith(b"commit"):
            return TransactionResolution.COMMIT
        if message.body.endswith(b"rollback"):
            return TransactionResolution.ROLLBACK
        return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED


class Listener(MessageListener):
    def __init__(self, group):
        self.group = group

    def consume(self, message):
        body = message.body.decode()
        with lock:
            before = got.setdefault(self.group, [])
            is_first = body not in (one for one, *_ in before)
            before.append((body, message.delivery_attempt, int(time.time() * 1000)))
        fails = (body.startswith("again") and is_first) or body.startswith("never")
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def message_of(order):
    message = Message()
    message.topic, message.body = order["topic"], order["body"].encode()
    if "tag" in order:
        message.tag = order["tag"]
    if "key" in order:
        message.keys = order["key"]
    if "property" in order:
        message.add_property("name", order["property"])
    if "order" in order:
        message.message_group = order["order"]
    if "deliver_ms" in order:
        message.delivery_timestamp = order["deliver_ms"] // 1000
    return message


def producer(order):
    one = Producer(configuration, tuple(order["topics"]), checker=Checker())
    one.startup()
    producers.append(one)
    return {}


def send(order):
    return {"id": producers[-1].send(message_of(order)).message_id}


def transact(order):
    transaction = producers[-1].begin_transaction()
    receipt = producers[-1].send(message_of(order), transaction)
    if order["end"] == "commit":
        transaction.commit()
    elif order["end"] == "rollback":
        transaction.rollback()
    return {"id": receipt.message_id}


def push(order):
    PushConsumer(configuration, order["group"], Listener(order["group"]),
                 {order["topic"]: FilterExpression(order["tag"])}).startup()
    return {}


def simple(order):
    one = SimpleConsumer(configuration, order["group"],
                         {order["topic"]: FilterExpression(order["tag"])}, await_duration=2)
    one.startup()
    simples[order["group"]] = one
    return {}


def receive(order):
    consumer = simples[order["group"]]
    seen = []
    for message in consumer.receive(16, 30) or []:
        consumer.change_invisible_duration(message, 20)
        consumer.ack(message)
        seen.append({
            "id": message.message_id, "body": message.body.decode(), "tag": message.tag or "",
            "keys": list(message.keys), "property": message.properties.get("name", ""),
            "attempt": message.delivery_attempt})
    return {"messages": seen}


def all_got(order):
    with lock:
        return {"got": list(got.get(order["group"], []))}


ORDERS = {"producer": producer, "send": send, "transact": transact, "push": push, "simple": simple,
          "receive": receive, "got": all_got}
for line in sys.stdin:
    asked = json.loads(line)
    try:
        said = ORDERS[asked["do"]](asked)
    except Exception as error:                        # what the client raises is its answer
        said = {"error": repr(error)}
    print("> " + json.dumps(said), flush=True)
