"""Faults put into a store, many at a time, for what has to find each of them."""
from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

from tests.store.golden import manifest

ENTRY_BYTES = 20
INDEX_HEADER = 40


def entry_path(root: Path, topic: str, queue_id: int, offset: int, file_bytes: int
               ) -> tuple[Path, int]:
    """File and byte of a queue's entry."""
    at = offset * ENTRY_BYTES
    folder = root / "consumequeue" / topic / str(queue_id)
    return folder / f"{at // file_bytes * file_bytes:020d}", at % file_bytes


def put(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def break_queues(root: Path, name: str, chance: random.Random) -> list[str]:
    """
    A wrong position, size and tag code, no entry, garbage, one beyond the end, and one that is
    elsewhere: where no file of the queue begins, and in a folder that is no queue's. Returns which.
    """
    known = manifest(name)
    file_bytes = next((root / "consumequeue").glob("*/*/*")).stat().st_size
    long = [one for one in known["consumeQueues"] if one["max"] - one["min"] > 20]
    done = []
    for kind in ("position", "size", "tag", "hole", "garbage", "beyond"):
        queue = chance.choice(long)
        offset = chance.randrange(queue["min"] + 1, queue["max"] - 2)
        path, at = entry_path(root, queue["topic"], queue["queueId"], offset, file_bytes)
        position, size, tag = struct.unpack(">qiq", path.read_bytes()[at:at + ENTRY_BYTES])
        changed = {
            "position": (position + 1, size, tag), "size": (position, size + 7, tag),
            "tag": (position, size, tag ^ 0x55), "hole": (0, 0, 0), "garbage": (position, -5, tag),
            "beyond": (1 << 40, size, tag)}[kind]
        put(path, at, struct.pack(">qiq", *changed))
        done.append(f"{kind} {queue['topic']}/{queue['queueId']} {offset}")
    queue = long[0]
    path, at = entry_path(root, queue["topic"], queue["queueId"], queue["min"] + 1, file_bytes)
    shutil.copytree(path.parent, path.parent.with_name(f"0{path.parent.name}"))
    entry = path.read_bytes()[at:at + ENTRY_BYTES]
    put(path, at, bytes(ENTRY_BYTES))
    path.with_name(f"{int(path.name) + at:020d}").write_bytes(entry)
    return [*done, f"elsewhere {queue['topic']}/{queue['queueId']} {queue['min'] + 1}"]


def break_index(root: Path, name: str, chance: random.Random) -> list[str]:
    """A wrong hash, seconds, chain, slot and a header's time; returns which."""
    settings = manifest(name)["settings"]
    slots = settings["maxHashSlotNum"]
    path = sorted((root / "index").iterdir())[0]
    count = manifest(name)["indexFiles"][0]["indexCount"]
    done = []
    for kind, field, low in (("hash", 0, 1), ("seconds", 12, 1), ("previous", 16, 1)):
        entry = chance.randrange(2, count - 2)
        at = INDEX_HEADER + 4 * slots + ENTRY_BYTES * entry + field
        value = struct.unpack(">i", path.read_bytes()[at:at + 4])[0]
        put(path, at, struct.pack(">i", value + low))
        done.append(f"{kind} {entry}")
    put(path, INDEX_HEADER + 4 * chance.randrange(slots), struct.pack(">i", 3))
    put(path, 8, struct.pack(">q", 1))
    return done


def break_log(root: Path, name: str, chance: random.Random) -> list[str]:
    """Two bodies with another CRC, a port that cannot be; returns which."""
    messages = [one for one in manifest(name)["messages"] if one["size"] > 300]
    size = manifest(name)["settings"]["mappedFileSizeCommitLog"]
    done = []
    for kind, field, content in (("body", 100, None), ("body", 100, None),
                                 ("port", 48 + 4, b"\x7f\x00\x00\x00")):
        one = chance.choice(messages[10:-10])
        at = one["physicalOffset"]
        path = root / "commitlog" / f"{at // size * size:020d}"
        place = at % size + field
        put(path, place, content or bytes([path.read_bytes()[place] ^ 4]))
        done.append(f"{kind} {at}")
    return done


def stretch(root: Path, name: str, number: int, field: int, value: int) -> None:
    """Another number of 64 bits in the head of a record."""
    at = manifest(name)["messages"][number]["physicalOffset"]
    size = manifest(name)["settings"]["mappedFileSizeCommitLog"]
    put(root / "commitlog" / f"{at // size * size:020d}", at % size + field,
        struct.pack(">q", value))
