"""
Flips bits of a small store, one at a time, and opens it after each:

    python -m tests.store.opened_flips ROOT after-crash|after-stop SEED DISTANCE

DISTANCE is from one byte to the next that is flipped. Each start is a forked child of this small
process. Prints a JSON object, how often it came to what; ends with 1 at
the first change that does harm.
"""
from __future__ import annotations

import gc
import json
import logging
import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.store import disk_life
from tests.store.disk_life import FILE_ENTRIES, SEGMENT, Life
from tests.store.harness import log_records, read_entries

MESSAGES = 8
RUN_S_MAX = 20
REFUSED = (3, 7)
SAYS_SO = ("it is cut there", "built again", "rebuilt", "damage", "is started again", "removed",
           "cannot be read", "not as")
FINE = ("refused", "same", "less and said so")
Served = list[list[Any]]


def in_child(body: Callable[[], Any], said: Path) -> tuple[int, str]:
    """(exit code of a forked process, what it and its libraries printed)."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 8
        try:
            signal.alarm(RUN_S_MAX)
            out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            logging.basicConfig(force=True, stream=sys.stderr)
            body()
            code = 0
        except disk_life.CLEAR as error:
            print(f"{type(error).__name__}: {error}")
            code = 7
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.read_text(errors="replace")


def make(root: Path, *, clean: bool) -> None:
    disk_life.threading.Thread = disk_life.QuietThread      # type: ignore[misc]
    with open(os.devnull, "w") as nowhere:
        life = Life(root, "sync", nowhere)
        life.start()
        life.send(MESSAGES)
        life.dispatch()
        life.save_settings()
        if clean:
            life.stop()


def serve(root: Path) -> Served:
    """Open the store as a start does; (topic, queue, offset, record) of all that queues lead to."""
    disk_life.threading.Thread = disk_life.QuietThread      # type: ignore[misc]
    with open(os.devnull, "w") as nowhere:
        life = Life(root, "sync", nowhere)
        life.start()
    state = life.segment.log_state()
    records = {record["physicalOffset"]: record for record in log_records(
        life.files.commit_log, SEGMENT, state["published"]) if not record.get("blank")}
    served: Served = []
    for queue in life.lives.all():
        # a flipped topic may begin with /
        entries = read_entries(Path(f"{life.files.queues}/{queue.topic}/{queue.queue_id}"),
                               queue.min_offset, queue.max_offset, FILE_ENTRIES)
        for offset, (position, size, _) in enumerate(entries, queue.min_offset):
            record = records.get(position)
            found = None if record is None or record["size"] != size else {
                name: str(value) for name, value in record.items()}
            served.append([queue.topic, queue.queue_id, offset, found])
    return sorted(served, key=lambda item: item[:3])


def opened(root: Path, folder: Path) -> tuple[int, str, Served]:
    result = folder / "served"
    result.unlink(missing_ok=True)
    code, said = in_child(lambda: result.write_text(json.dumps(serve(root))), folder / "said")
    return code, said, json.loads(result.read_text()) if code == 0 else []


def verdict(code: int, said: str, served: Served, stored: Served) -> str:
    """"refused", "same", "less and said so"; anything else is what is wrong."""
    if code != 0:
        if code in REFUSED and ("log position" in said or "/store" in said):
            return "refused"
        return f"ended with {code}: {said}"
    if served == stored:
        return "same"
    wrong = [item for item in served if item not in stored]
    if wrong:
        return f"served {wrong[0]}; said {said!r}"
    return "less and said so" if any(word in said for word in SAYS_SO) else (
        f"{len(stored) - len(served)} messages are gone without a word: {said!r}")


def flips(original: Path, dice: random.Random, distance: int) -> Iterator[tuple[str, int, int]]:
    """(file below the store, byte, bit) of each change."""
    for path in sorted(original.rglob("*")):
        name = str(path.relative_to(original))
        if not path.is_file() or name in ("lock", "abort"):
            continue
        size = path.stat().st_size
        used = min(len(path.read_bytes().rstrip(b"\0")) + 8, size)
        for at in range(dice.randrange(distance) % max(used, 1), used, distance):
            yield name, at, dice.randrange(8)
        for _ in range(min(size - used, 20)):               # untouched zeros: a few of them
            yield name, dice.randrange(used, size), dice.randrange(8)


def try_all(memory: Path, *, clean: bool, seed: int, distance: int) -> Counter[str]:
    """What the starts came to; AssertionError with the first change that does harm."""
    dice = random.Random(seed)
    original, root = memory / "original" / "store", memory / "store"
    disk_life.small_settings(root, "sync")
    disk_life.small_settings(original, "sync")
    gc.collect()
    gc.freeze()             # no child looks through what is here, and copies it for that
    code, said = in_child(lambda: make(original, clean=clean), memory / "said")
    assert code == 0, said
    shutil.copytree(original, root)
    code, said, stored = opened(root, memory)
    assert (code, len(stored)) == (0, MESSAGES), said
    verdicts: Counter[str] = Counter()
    for name, at, bit in flips(original, dice, distance):
        if clean and name.startswith("commitlog"):
            continue
        shutil.rmtree(root)
        shutil.copytree(original, root)
        with (root / name).open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))
        found = verdict(*opened(root, memory), stored)
        assert found in FINE, f"bit {bit} of byte {at} of {name}: {found}"
        verdicts[found] += 1
    return verdicts


if __name__ == "__main__":
    folder, life, seed, distance = sys.argv[1:]
    print(json.dumps(try_all(Path(folder), clean=life == "after-stop", seed=int(seed),
                             distance=int(distance))))
