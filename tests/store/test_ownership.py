"""A store in use excludes others by any path, whatever was done to its file `lock`."""
from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqcore.store import files, ownership
from mqcore.store.log import owner
from mqcore.store.log.folders import LogFolders
from mqcore.store.ownership import BrokerLock, StoreInUseError, StoreLock

STOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+" if sys.argv[2] == "there" else "w")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
except OSError:
    print("refused", flush=True)
else:
    file.write("lock"), file.flush()
    print("locked", flush=True)
    sys.stdin.read()
"""


def a_store(root: Path) -> Path:
    (root / "commitlog").mkdir(parents=True)
    (root / "config").mkdir()
    return root


def log_of(root: Path) -> LogFolders:
    return LogFolders((root / "commitlog",), store=root)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "WAIT_S", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_store(tmp_path / "store")


@pytest.fixture
def broker(root: Path) -> Iterator[BrokerLock]:
    lock = BrokerLock(root, log_of(root))
    yield lock
    lock.release()


class Stock:
    """A stock broker's lock: that of a process, on the first byte of the file."""

    def __init__(self, lock: Path, there: str = "there") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", STOCK, lock, there], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.said = self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.communicate()


def elsewhere(call: Callable[[], object]) -> str:
    """The result of a call in another process, or the sentence of its refusal."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(call())
        except StoreInUseError as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def linked(root: Path) -> Path:
    link = root.with_name("link")
    link.symlink_to(root)
    return link


PATHS: list[Callable[[Path], Path]] = [
    lambda root: root, linked, lambda root: root.parent / "store" / ".." / "store"]


@pytest.mark.parametrize("path", PATHS, ids=["same", "link", "dots"])
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.usefixtures("broker")
def test_a_second_user_is_refused_by_any_path_with_or_without_the_file(
        root: Path, path: Callable[[Path], Path], removed: bool) -> None:
    if removed:
        (root / "lock").unlink()
    other = path(root)

    assert "in use by another broker" in elsewhere(lambda: BrokerLock(other, log_of(other)))
    for changes in (False, True):
        said = elsewhere(lambda changes=changes: StoreLock(other, changes=changes))
        assert "a broker runs on this store" in said
    assert elsewhere(lambda: ownership.holder(other)) == str(-1 if removed else os.getpid())


def test_a_start_that_is_refused_leaves_a_removed_file_to_the_broker_that_runs(
        root: Path, broker: BrokerLock) -> None:
    (root / "lock").unlink()
    assert "in use by another broker" in elsewhere(lambda: BrokerLock(root, log_of(root)))

    assert not (root / "lock").exists()
    assert (broker.look(), broker.made_again) == ("", 1)


@pytest.mark.parametrize("kind", ["named", "linked"])
def test_a_folder_of_the_log_has_one_broker(root: Path, tmp_path: Path, kind: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    first = BrokerLock(root, LogFolders((root / "commitlog", shared), store=root))
    other = tmp_path / "other"
    (other / "config").mkdir(parents=True)
    if kind == "linked":
        (other / "commitlog").symlink_to(shared)
    log = LogFolders((other / "commitlog" if kind == "linked" else shared,), store=other)

    with pytest.raises(StoreInUseError) as refused:
        BrokerLock(other, log)
    first.release()

    assert str(log.writable[0]) in str(refused.value)
    BrokerLock(other, log).release()


@pytest.mark.usefixtures("broker")
def test_a_copy_of_a_live_store_is_free(root: Path) -> None:
    (root / "abort").write_text("async boot")
    copy = Path(shutil.copytree(root, root.with_name("copy")))

    assert ownership.holder(copy) == 0
    StoreLock(copy, changes=True).release()
    lock = BrokerLock(copy, log_of(copy))
    lock.release()


def test_a_store_is_in_use_until_the_last_process_of_its_run_ends(root: Path) -> None:
    hold, let_go = os.pipe()
    parent = os.fork()
    if parent == 0:                    # a broker, whose child outlives it
        BrokerLock(root, log_of(root))
        (root / "lock").unlink()
        if os.fork() == 0:
            os.close(let_go)
            os.read(hold, 1)
        os._exit(0)
    os.waitpid(parent, 0)

    with pytest.raises(StoreInUseError, match="processes of an earlier run"):
        BrokerLock(root, log_of(root))
    os.close(let_go)
    os.close(hold)
    ownership.WAIT_S = 30.0            # which the fixture puts back
    BrokerLock(root, log_of(root)).release()


@pytest.mark.usefixtures("broker")
def test_ours_keeps_a_stock_broker_away(root: Path) -> None:
    stock = Stock(root / "lock")
    stock.end()
    assert stock.said == "refused"


def test_a_stock_broker_keeps_ours_away(root: Path) -> None:
    stock = Stock(root / "lock", "new")
    try:
        with pytest.raises(StoreInUseError, match="in use by another broker"):
            BrokerLock(root, log_of(root))
        with pytest.raises(StoreInUseError):
            StoreLock(root)
    finally:
        stock.end()
    assert stock.said == "locked"
    BrokerLock(root, log_of(root)).release()


def test_a_removed_file_is_made_again_and_keeps_stock_away(
        root: Path, broker: BrokerLock) -> None:
    elsewhere(lambda: owner.mark_alone(root / "lock"))
    (root / "lock").unlink()

    assert (broker.look(), broker.made_again) == ("", 1)
    assert elsewhere(lambda: owner.alone(root / "lock")) == "True"
    stock = Stock(root / "lock")
    stock.end()
    assert stock.said == "refused"
    assert (broker.look(), broker.made_again) == ("", 1)


@pytest.mark.parametrize("ends", [False, True])
def test_a_store_that_a_stock_broker_has_opened_is_lost_for_good(
        root: Path, broker: BrokerLock, ends: bool) -> None:
    (root / "lock").unlink()
    stock = Stock(root / "lock", "new")
    if ends:
        stock.end()
    assert "another broker has made its own" in broker.look()

    if not ends:
        stock.end()
    (root / "lock").unlink()
    assert "another broker has made its own" in broker.look()
    assert (stock.said, broker.made_again) == ("locked", 0)


@pytest.mark.parametrize("which", ["store", "store/commitlog"])
def test_a_folder_that_is_moved_is_missed_until_it_is_back(
        root: Path, broker: BrokerLock, tmp_path: Path, which: str) -> None:
    folder = tmp_path / which
    folder.rename(tmp_path / "away")
    assert f"{folder} does not lead" in broker.look()
    folder.mkdir()
    assert f"{folder} does not lead" in broker.look()
    folder.rmdir()
    (tmp_path / "away").rename(folder)
    assert broker.look() == ""


def test_nothing_is_written_where_the_path_leads_to_meanwhile(
        root: Path, broker: BrokerLock, tmp_path: Path) -> None:
    table = root / "config" / "topics.json"
    files.write_atomically(table, b"mine")
    root.rename(tmp_path / "away")
    a_store(root)
    table.write_bytes(b"theirs")

    for change in (lambda: files.write_atomically(table, b"mine again"),
                   lambda: files.write_in_place(table, b"mine again"),
                   lambda: files.unlink(table),
                   lambda: files.make_folders(root / "consumequeue")):
        with pytest.raises(OSError, match="leads elsewhere") as refused:
            change()
        assert (refused.value.errno, table.read_bytes()) == (errno.ESTALE, b"theirs")
    assert sorted(path.name for path in root.iterdir()) == ["commitlog", "config"]
    root.rename(tmp_path / "theirs")
    with pytest.raises(OSError, match="leads elsewhere"):
        files.make_folders(root / "consumequeue")
    assert not root.exists()
    (tmp_path / "theirs").rename(root)
    beside = tmp_path / "beside"
    files.write_atomically(beside, b"of no store")
    broker.release()
    files.write_atomically(table, b"of any store")
    assert (beside.read_bytes(), table.read_bytes()) == (b"of no store", b"of any store")


def test_where_folders_have_no_locks_the_file_has_one(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def of_a_network(fd: int, kind: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EBADF, "no lock on a folder")
        real(fd, kind)

    monkeypatch.setattr(fcntl, "flock", of_a_network)
    lock = BrokerLock(root, log_of(root))
    assert "in use by another broker" in elsewhere(lambda: BrokerLock(root, log_of(root)))
    assert "a broker runs on this store" in elsewhere(lambda: StoreLock(root))
    lock.release()
    StoreLock(root).release()


def test_readers_share_a_store_and_who_changes_it_does_not(root: Path) -> None:
    for removed in (False, True):
        if not removed:
            (root / "lock").touch()
        readers = [StoreLock(root), StoreLock(root)]
        assert "a broker runs" in elsewhere(lambda: StoreLock(root, changes=True))
        assert "another broker" in elsewhere(lambda: BrokerLock(root, log_of(root)))
        for reader in readers:
            reader.release()
        (root / "lock").unlink(missing_ok=True)
    StoreLock(root, changes=True).release()
