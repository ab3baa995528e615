"""A store that rejoins is cut by what its own files are, whatever the master says of itself."""
from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from mqcore.admin.store import records
from mqcore.replication import epochs
from mqcore.replication import rejoin as rejoins
from mqcore.replication.epochs import Epoch, History, Standing, State
from mqcore.replication.greet import ANNOUNCE, GREETING_CHECKED_BYTES_MAX
from mqcore.replication.greeting import Greeting
from mqcore.replication.log_bytes import log_crc
from mqcore.replication.rejoin import RejoinError, rejoin
from mqcore.store.log.folders import LogFolders
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.store import verify
from tests.store import golden

FIRST = Epoch(1, 0, "first", 1)


class Overtaken:
    """A store that led, and what its new master says of a log that parted from it."""

    def __init__(self, folder: Path) -> None:
        self.root = golden.unpack("basic", folder)
        log = LogFolders((self.root / "commitlog",))
        size = log.segments()[0][1].stat().st_size
        end = golden.manifest("basic")["afterRecovery"]["maxPhyOffset"]
        self.position = next(one.physical_offset for one in records(self.root)
                             if one.physical_offset > end - 4000)
        epochs.write(self.root, Standing(History("a" * 32, (FIRST,)), State.LEADS))
        start = max(self.position - GREETING_CHECKED_BYTES_MAX,
                    (self.position - 1) // size * size)
        self.greeting = Greeting(
            self.position, start, self.position, log_crc(log, start, self.position, size),
            "b", "c", size,
            History("a" * 32, (FIRST, Epoch(2, self.position, "second", 2))))

    def content(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes()
                for path in self.root.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.fixture
def overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Overtaken:
    made = Overtaken(tmp_path)
    monkeypatch.setattr(rejoins, "greeted", lambda *_: made.greeting)
    return made


def test_offsets_of_what_is_cut_are_not_brought_to_the_master(overtaken: Overtaken) -> None:
    config = overtaken.root / "config"
    for name in ("ownOffsets.json", "ownOffsets.json.bak"):
        (config / name).write_text('{"offsetTable":{"T@G":{0:300}}}')

    found = rejoin(overtaken.root, ("master", 1), 1)

    assert found.position == overtaken.position < found.end
    assert not list(config.glob("ownOffsets*"))
    report = verify(overtaken.root)
    assert report.figures["end"] == overtaken.position
    assert [one.line() for one in report.findings if one.severity == DAMAGE] == []


@pytest.mark.parametrize(("change", "word"), [
    ({"segment_bytes": 4096}, "segment_size_bytes is 4096"),
    ({"segment_bytes": 1}, "segment_size_bytes is 1"),
    ({"checked_from": -1, "crc32c": 0}, "shows no bytes"),
    ({"crc32c": 1}, "others than the master's"),
])
def test_a_master_that_shows_nothing_or_other_files_cuts_nothing(
    overtaken: Overtaken, change: dict[str, int], word: str,
) -> None:
    if change.get("checked_from") == -1:
        change = {**change, "checked_from": overtaken.position}
    overtaken.greeting = replace(overtaken.greeting, **change)         # type: ignore[arg-type]
    before = overtaken.content()

    with pytest.raises(RejoinError, match=word):
        rejoin(overtaken.root, ("master", 1), 1)

    assert overtaken.content() == before


def test_a_master_that_speaks_in_crumbs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoins, "GREETING_S", 0.3)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def speak() -> None:
            link, _ = listener.accept()
            with link, contextlib.suppress(OSError):
                link.sendall(rejoins.FRAME.pack(ANNOUNCE, 1 << 20))
                while not over.wait(0.02):
                    link.sendall(b"{")

        speaker = threading.Thread(target=speak)
        speaker.start()
        timer = threading.Timer(30, over.set)                # so that the test ends
        timer.start()
        with pytest.raises(TimeoutError):
            rejoins.greeted(listener.getsockname(), 0)
        assert not over.is_set()
        over.set()
        timer.cancel()
        speaker.join()
