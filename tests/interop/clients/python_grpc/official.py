"""
The official Python client: sends, receives by a push and by a simple consumer, and prints what it
saw as one JSON object.
"""
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
)

WAIT_S = 60
configuration = ClientConfiguration(sys.argv[1], Credentials(*sys.argv[2:4]))
got = []
came = threading.Condition()


class Listener(MessageListener):
    def consume(self, message):
        with came:
            got.append((message.body.decode(), message.delivery_attempt))
            came.notify_all()
        once_more = message.body == b"again" and message.delivery_attempt == 1
        return ConsumeResult.FAILURE if once_more else ConsumeResult.SUCCESS


def send(producer, body, tag):
    message = Message()
    message.topic, message.body, message.tag, message.keys = "PythonTopic", body, tag, "key"
    message.add_property("name", "value")
    return producer.send(message).message_id


def wait(done):
    with came:
        came.wait_for(done, WAIT_S)


producer = Producer(configuration, ("PythonTopic",))
producer.startup()
push = PushConsumer(configuration, "PythonPush", Listener(), {"PythonTopic": FilterExpression("a")})
ids = [send(producer, b"first", "a"), send(producer, b"other tag", "b")]
push.startup()
ids += [send(producer, b"second", "a"), send(producer, b"again", "a")]
wait(lambda: ("again", 2) in got and ("first", 1) in got and ("second", 1) in got)
simple = SimpleConsumer(configuration, "PythonSimple", {"PythonTopic": FilterExpression()})
simple.startup()
received = {}
until = time.monotonic() + WAIT_S
while len(received) < len(ids) and time.monotonic() < until:
    for message in simple.receive(16, 30) or []:
        received[message.message_id] = [
            message.body.decode(), message.tag, sorted(message.keys), message.properties]
        simple.ack(message)
print(json.dumps({"ids": ids, "push": sorted(set(got)), "simple": received}), flush=True)
producer.shutdown()
