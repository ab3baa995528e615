"""A broker is believed only when it shows that it has the log that it tells of (proof.py)."""
from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.settings.model import Settings
from mqcore.broker.standing import StandingError
from mqcore.replication import epochs, peers
from mqcore.replication.epochs import Epoch, History, Standing, State
from mqcore.replication.peers import PeerState
from mqcore.replication.proof import ProofError, asked_for, digest, drawn, is_proven
from mqcore.store.log.folders import LogFolders
from mqcore.wire.command import decode, encode, response
from mqcore.workers.failover import standing
from mqcore.workers.failover.standing import Watch
from tests.broker.fakes import make_bench, settings_in

SEGMENT = 131_072
NONCE = "0123456789abcdef" * 2
MINE = History("ab" * 16, (Epoch(1, 0, "broker-a/127.0.0.2:40911", 5),))


def lay_log(folder: Path, size: int, seed: int = 1) -> LogFolders:
    """A log of random bytes in segments of SEGMENT."""
    log = folder / "commitlog"
    log.mkdir(parents=True)
    data = random.Random(seed).randbytes(size)
    for start in range(0, size, SEGMENT):
        (log / f"{start:020d}").write_bytes(data[start:start + SEGMENT].ljust(SEGMENT, b"\0"))
    return LogFolders((log,))


def taken_over(start: int) -> History:
    """An epoch of another broker, behind mine."""
    return History(MINE.log_id, (*MINE.epochs, Epoch(2, start, "broker-a/9.9.9.9:1", 6)))


def test_the_same_log_is_proven_and_neither_another_one_nor_another_address(tmp_path: Path) -> None:
    here = lay_log(tmp_path / "here", 300_000)
    there = lay_log(tmp_path / "there", 300_000)
    other = lay_log(tmp_path / "other", 300_000, seed=2)
    for _ in range(20):
        positions = drawn(MINE, taken_over(99_000), 0, 300_000)
        assert 99_000 in positions
        assert asked_for(NONCE, ",".join(map(str, positions)), taken_over(99_000), 0, 300_000)

        def shown(log: LogFolders, address: str, of: list[int] = positions) -> dict[str, str]:
            return {str(one): digest(log, SEGMENT, 0, one, NONCE, address) for one in of}

        assert is_proven(positions, shown(there, "a:1"), here, SEGMENT, 0, NONCE, "a:1")
        assert not is_proven(positions, shown(other, "a:1"), here, SEGMENT, 0, NONCE, "a:1")
        assert not is_proven(positions, shown(there, "b:1"), here, SEGMENT, 0, NONCE, "a:1")
        assert not is_proven(positions, {}, here, SEGMENT, 0, NONCE, "a:1")
    assert not is_proven([], {}, here, SEGMENT, 0, NONCE, "a:1")


def test_positions_are_drawn_anew_and_lie_in_what_both_logs_have() -> None:
    seen = {one for _ in range(50) for one in drawn(MINE, taken_over(900_001), 8192, 1_000_000)}
    assert len(seen) > 40
    assert all(8192 < one <= 900_001 for one in seen)
    assert drawn(MINE, replace(MINE, log_id="cd" * 16), 0, 1_000_000) == []
    assert drawn(MINE, MINE, 0, 4095) == []


@pytest.mark.parametrize(("nonce", "positions"), [
    (NONCE, "4097"), (NONCE, "1"), (NONCE, "0"), (NONCE, "303104"), (NONCE, ""), (NONCE, "4096,x"),
    (NONCE, "4096," * 4 + "4096"), (NONCE, "-4096"), (NONCE[1:], "4096"), ("x" * 32, "4096")])
def test_the_log_is_not_shown_byte_by_byte(nonce: str, positions: str) -> None:
    with pytest.raises(ProofError):
        asked_for(nonce, positions, MINE, 0, 300_000)


class Stranger:
    """
    It has the epochs, and one more, and no log. relays: it hands each question on to the very
    broker that asks, and answers with that one's digests.
    """

    def __init__(self, history: History, end: int, relays: Any = None) -> None:
        self.history, self.end, self.relays = history, end, relays
        self.asked = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            command = decode(await reader.readexactly(int.from_bytes(size, "big")))
            self.asked += 1
            proofs: dict[str, str] = {}
            if self.relays is not None and (command.ext or {}).get("nonce"):
                said = self.relays.ask(32001, dict(command.ext))
                proofs = peers.decode(said.body).proofs if said.code == 0 else {}
            answer = response(command, 0)
            answer.body = peers.encode(PeerState(
                "broker-a", "DefaultCluster", 0, "sync-master", 0, self.end, self.history, {},
                proofs))
            writer.write(encode(answer))
            await writer.drain()
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    lay_log(tmp_path, 300_000)
    epochs.write(tmp_path, Standing(MINE, State.LEADS))
    return settings_in(tmp_path, f"store.segment_size_bytes={SEGMENT}", "replication.listen=true",
                       "store.message_size_max_bytes=60000",
                       "broker.namesrv_addrs=127.0.0.1:1")


def look(settings: Settings, stranger: Stranger, monkeypatch: pytest.MonkeyPatch,
         overtaken: list[str]) -> bool:
    async def scenario() -> bool:
        async with stranger.listening() as address:
            async def members(*_: Any) -> dict[str, int]:
                return {address: 7}

            monkeypatch.setattr(peers, "members", members)
            return await Watch(lambda: None, lambda: None,
                               lambda: overtaken.append(address)).look(settings)

    return asyncio.run(scenario())


def start(settings: Settings, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that starts asks the stranger. Raises StandingError when it must not lead."""
    async def scenario() -> None:
        async with stranger.listening() as address:
            async def members(*_: Any) -> dict[str, int]:
                return {address: 7}

            monkeypatch.setattr(peers, "members", members)
            await asyncio.to_thread(standing._ask_others, settings, Standing(MINE, State.LEADS),
                                    300_000, None)

    asyncio.run(scenario())


@pytest.mark.parametrize("relays", [False, True])
@pytest.mark.parametrize("start", [99_000, 4096, 0])
def test_a_stranger_that_tells_of_one_epoch_more_stops_no_master(
        settings: Settings, start: int, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture, relays: bool) -> None:
    bench = make_bench(settings)
    bench.store.records = {0: b"", 300_000: b""}          # as long as the files say
    overtaken: list[str] = []
    stranger = Stranger(taken_over(start), 300_000, bench if relays else None)
    assert look(settings, stranger, monkeypatch, overtaken)
    assert overtaken == []
    assert stranger.asked
    assert "it has not shown that it has the log of epoch 2" in caplog.text
    monkeypatch.setattr("mqcore.workers.failover.standing.is_proven", lambda *_: True)
    assert not look(settings, stranger, monkeypatch, overtaken)      # as before there were proofs
    assert len(overtaken) == 1


@pytest.mark.parametrize("relays", [False, True])
@pytest.mark.parametrize("history", [taken_over(99_000), taken_over(0), MINE],
                         ids=["newer", "newer from the beginning", "more of the same"])
def test_a_stranger_keeps_no_master_from_leading_that_starts(
        settings: Settings, history: History, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture, relays: bool) -> None:
    bench = make_bench(settings)
    bench.store.records = {0: b"", 300_000: b""}
    stranger = Stranger(history, 400_000, bench if relays else None)
    start(settings, stranger, monkeypatch)
    assert stranger.asked
    assert "it has not shown that it has the log of epoch" in caplog.text
    monkeypatch.setattr("mqcore.workers.failover.standing.is_proven", lambda *_: True)
    with pytest.raises(StandingError):
        start(settings, stranger, monkeypatch)
