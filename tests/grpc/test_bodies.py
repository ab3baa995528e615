"""Bodies with their digest; messages that a client gives back when it ends."""
from __future__ import annotations

import hashlib

from tests.grpc.caller import Caller, calling
from tests.grpc.world import GrpcBroker

LENGTHS = (1, 3, 54, 55, 56, 57, 63, 64, 65, 118, 119, 120, 121, 127, 128, 129, 1000, 100_000)


def test_the_digest_is_that_of_the_body(caller: Caller) -> None:
    """Every client checks it, and that of Node reads no message without one."""
    for length in LENGTHS:
        body = bytes(number * 7 % 251 for number in range(length))
        assert caller.send("Digests", body, message_id=str(length))["status"]["code"] == 20000
    found = set()
    while len(found) < len(LENGTHS):
        for message in caller.receive("Digests", "DigestsGroup")[1]:
            assert message["system_properties"]["body_digest"] == {
                "type": 2, "checksum": hashlib.md5(message["body"]).hexdigest().upper()}
            found.add(len(message["body"]))
    assert found == set(LENGTHS)


def test_a_client_that_says_that_it_ends_gives_back_what_it_holds(
        live: GrpcBroker, caller: Caller) -> None:
    """At once, and not when its messages' 60 seconds are over, or its connection has gone."""
    caller.send("Ending", b"held")
    with calling(live.address) as client:
        code, (message,) = client.receive("Ending", "EndingGroup", auto_renew=True)
        assert (code, message["body"]) == (20000, b"held")
        assert client.unary("NotifyClientTermination", "NotifyClientTerminationRequest", {
            "group": {"name": "EndingGroup"}})["status"]["code"] == 20000
        code, (message,) = caller.receive("Ending", "EndingGroup", wait_s=15)
        assert message["system_properties"]["delivery_attempt"] == 2
