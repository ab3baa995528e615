"""Signed frames, access files and the shared memory of tests of access control."""
from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mqcore.acl.folder import AclFolder
from mqcore.acl.rules import Rules, signature
from mqcore.shm.access import AccessBoard
from mqcore.shm.segment import Segment
from mqcore.wire.command import Codec, Command, Ext, encode
from mqcore.workers.coordinator.shared_tables import table_of

LENGTH_WORD = 4


def signed(code: int, ext: Mapping[str, str], key: str, secret: str, body: bytes = b"",
           *, codec: Codec = Codec.JSON) -> Command:
    """A request of an account."""
    full: Ext = {**ext, "AccessKey": key}
    full["Signature"] = signature(secret, full, body).decode()
    return Command(code, ext=full, body=body, codec=codec)


def frame(command: Command) -> bytes:
    """Without its length word."""
    return encode(command)[LENGTH_WORD:]


def json_frame(header: str, body: bytes = b"") -> bytes:
    """A header as somebody wrote it."""
    raw = header.encode()
    return len(raw).to_bytes(4, "big") + raw + body


@contextmanager
def shown(rules: Rules, name: str) -> Iterator[Segment]:
    """Shared memory that shows these rules; name: with a slash."""
    table = table_of(rules)
    segment = Segment.create(
        name, run_id=1, serving_count=1, segment_size=65536, message_bytes_max=4096, topics=64,
        groups=64, subscriptions=64, queues=64, access_bytes=max(len(table), 65536), kind="memfd")
    try:
        AccessBoard(segment).write(table)
        yield segment
    finally:
        segment.unlink()


def read(folder: Path, text: str, *, stock: bool = False) -> Rules:
    """The rules of a folder whose plain_acl.yml has this text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plain_acl.yml").write_text(text, encoding="utf-8")
    return AclFolder(folder).read(stock_permissions=stock)


# -- random worlds ---------------------------------------------------------------------------------

NAMES = ("orders", "payments", "audit-log", "T%1", "RMQ_SYS_TRACE_TOPIC", "thémé", "%RETRY%workers")
GROUPS = ("workers", "billing", "G_2", "%RETRY%billing")
PERMS = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB", "ANY", "pub", "PUB | SUB")
V4 = ("10.0.0.1", "10.0.0.2", "10.0.1.5", "10.1.3.4", "192.168.7.9", "172.16.0.1")
V4_PATTERNS = ("", "10.0.0.1", "10.0.0.{1,2}", "10.0.*.*", "10.0.1-5.*", "192.168.0-7.5",
               "10.0.0.1-1", "172.16.0.1,10.1.3.4", "10.1.3.4-9")
# As Java writes the address of a peer; an account may have it in any form.
V6 = ("0:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:1:7", "2001:db8:0:0:a:0:0:ff",
      "1:2:3:4:5:6:7:8")
V6_PATTERNS = ("", "::1", "FE80::1", "fe80::{1,2}", "fe80::1,2001:db8::a:0:0:ff",
               "fe80:0:0:0:0:0:0-1:*", "fe80:0:0:0:0:0:1:1-9", "1:2:3:4:5:6:7:*",
               "2001:db8:0:0:a:0:0:ff", "*:*:*:*:*:*:*:*")
ACCOUNTS = range(8)


def world(chance: random.Random, patterns: Sequence[str] = V4_PATTERNS,
          numbers: Sequence[int] = (), secret: str = "secret") -> str:
    """
    The text of an access file with edges of all kinds. numbers: of its accounts; secret: what their
    secret keys begin with.
    """
    lines = ["globalWhiteRemoteAddresses:"]
    lines += [f"- {one!r}" for one in chance.sample(patterns, chance.randrange(2))] or ["- ''"]
    lines.append("accounts:")
    for number in numbers or range(chance.randrange(2, 7)):
        lines += [f"- accessKey: account-{number}", f"  secretKey: {secret}-{number}"]
        if chance.random() < 0.3:
            lines.append(f"  whiteRemoteAddress: {chance.choice(patterns)!r}")
        if chance.random() < 0.6:
            lines.append(f"  admin: {chance.choice(('true', 'false'))}")
        for name in ("defaultTopicPerm", "defaultGroupPerm"):
            if chance.random() < 0.8:
                lines.append(f"  {name}: {chance.choice(PERMS)!r}")
        for name, named in (("topicPerms", NAMES), ("groupPerms", GROUPS)):
            if chance.random() < 0.6:
                chosen = chance.sample(named, chance.randrange(1, 4))
                lines += [f"  {name}:", *(f"  - {one + '=' + chance.choice(PERMS)!r}"
                                         for one in chosen)]
    return "\n".join(lines) + "\n"


def spread(chance: random.Random, folder: Path) -> Rules:
    """
    Rules spread over plain_acl.yml and two files below acl/ of a folder, as stock has them. Some
    accounts are named twice, in one file or in several, some of them with another secret key there.
    """
    names = listed_in_order(folder / "acl", 2)
    texts = [world(chance, chance.choice((V4_PATTERNS, V6_PATTERNS)),
                   chance.choices(ACCOUNTS, k=chance.randrange(2, 6)),
                   chance.choice(("secret", "secret", "other")))
             for _ in (*names, "plain_acl.yml")]
    for name, text in zip(names, texts, strict=False):
        (folder / "acl" / name).write_text(text, encoding="utf-8")
    return read(folder, texts[-1], stock=True)


def listed_in_order(folder: Path, count: int) -> list[str]:
    """
    Names of new files that the folder lists in their order: stock reads them as they are listed,
    and of an account in several of them the first counts.
    """
    folder.mkdir(parents=True)
    for attempt in range(10_000):
        names = [f"{place}-{attempt}.yml" for place in range(count)]
        for name in names if attempt % 2 else reversed(names):
            (folder / name).touch()
        if os.listdir(folder) == names:
            return names
        for name in names:
            (folder / name).unlink()
    raise AssertionError(f"{folder} lists no files in the order of their names")


def heartbeat(chance: random.Random, names: Sequence[str]) -> bytes:
    """A heartbeat's body."""
    consumers = ",".join(
        f'{{"groupName":"{chance.choice(GROUPS)}","subscriptionDataSet":[' + ",".join(
            f'{{"topic":"{name}","subString":"*"}}'
            for name in chance.sample(names, chance.randrange(3))) + "]}"
        for _ in range(chance.randrange(3)))
    return f'{{"clientID":"c","producerDataSet":[],"consumerDataSet":[{consumers}]}}'.encode()


def request(chance: random.Random) -> Command:
    """A request with the fields that its code has, whose signature is right, wrong or missing."""
    code = chance.choice((10, 310, 320, 11, 12, 15, 34, 35, 36, 37, 38, 41, 17, 25, 215, 200, 207,
                          14, 28, 50, 324))
    topic, group = chance.choice(NAMES), chance.choice(GROUPS)
    ext = {"topic": topic, "consumerGroup": group, "group": group, "producerGroup": group,
           "clientID": "c", "queueId": "0", "offset": "7", "queueOffset": "1", "commitOffset": "2",
           "maxMsgNums": "32", "sysFlag": "0", "delayLevel": "0", "subVersion": "0",
           "suspendTimeoutMillis": "0", "key": "k", "maxNum": "3", "beginTimestamp": "0",
           "endTimestamp": "9"}
    if code in (310, 320, 324):
        ext = {"a": group, "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
               "h": "0", "i": 'p\x01"v"\\\x02é\U0001F600', "j": "0", "k": "false", "m": "false"}
    if code == 12 and chance.random() < 0.3:
        ext["_UNIQUE_KEY_QUERY"] = "true"
    body = heartbeat(chance, NAMES) if code == 34 else (
        b'{"clientId":"c","consumerGroup":"workers","mqSet":[]}' if code == 41 else
        chance.randbytes(chance.choice((0, 1, 63, 64, 65, 500))))
    number = chance.randrange(8)
    key, secret = f"account-{number}", f"secret-{number}"
    how = chance.random()
    codec = chance.choice(tuple(Codec))
    if how < 0.05:
        return Command(code, ext=dict(ext), body=body, codec=codec)
    if how < 0.15:
        secret = "another-secret"
    command = signed(code, ext, key, secret, body, codec=codec)
    if how > 0.97 and code != 34:
        command.body += b"x"
    return command
