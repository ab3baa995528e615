"""
What brokers of one name say of themselves: role, log, epochs (GET_REPLICATION, ours alone). A stock
broker does not know the question.
"""
from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mqcore.client.core.signature import Credentials, signer
from mqcore.client.errors import RocketMQError
from mqcore.client.network.pool import ConnectionPool
from mqcore.replication import epochs
from mqcore.replication.epochs import EpochsError, History
from mqcore.replication.proof import POSITIONS_MAX
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, Ext, request
from mqcore.wire.numbers import whole_number
from mqcore.wire.printable import printable

CALL_S = 2.0
MEMBERS_MAX = 64                 # of one name that are asked
ELECTION_KEYS = "failover"        # what their names in runtime info begin with
ELECTION_KEYS_MAX = 32


class PeerError(RuntimeError):
    """A broker or name server did not answer, or not so that it can be used."""


class AnsweredError(PeerError):
    """It is there, and says nothing that can be used: a stock broker, or one that refuses."""


class UnprovenError(AnsweredError):
    """It tells of a log that it has not shown to have (proof.py)."""


class Prove(Protocol):
    """How a broker has to show that it has the log that it tells of."""

    def positions(self, state: PeerState) -> list[int] | None:
        """The positions to ask for; none: nothing would do; None: nothing follows from its word."""
        ...

    def holds(self, positions: list[int], proofs: dict[str, str], nonce: str, address: str,
              ) -> bool: ...


@dataclass(frozen=True)
class PeerState:
    """
    broker, cluster, broker_id, role   as its settings say
    first, end   of its log, positions in bytes
    history      its epochs; None: it has none
    election     what runtime info says of it (28), where who leads is elected
    proofs       by position: the digests that were asked for (proof.py)
    """

    broker: str
    cluster: str
    broker_id: int
    role: str
    first: int
    end: int
    history: History | None
    election: dict[str, str] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)


async def states(
    name_servers: Sequence[str], broker: str, account: Credentials | None,
    tls: ssl.SSLContext | None = None, own: str = "",
    unanswered: Callable[[str], None] | None = None, prove: Prove | None = None,
) -> dict[str, PeerState | PeerError]:
    """
    What each broker of this name says, by address; name servers that do not answer count not.

    account: that signs the questions; tls: what connections are made with, None: in the clear; own:
    the address of who asks, if that is one of them; unanswered: hears why, when no name server
    answers; prove: a broker whose proof fails is an AnsweredError.
    """
    pool = ConnectionPool(tls=tls, connect_timeout=CALL_S, prepare=signer(account))
    try:
        return await _states(pool, name_servers, broker, own, unanswered, prove)
    finally:
        await pool.close()


async def _states(
    pool: ConnectionPool, name_servers: Sequence[str], broker: str, own: str,
    unanswered: Callable[[str], None] | None, prove: Prove | None,
) -> dict[str, PeerState | PeerError]:
    addresses: dict[str, int] = {}
    silent: list[PeerError] = []
    for found in await asyncio.gather(
            *(members(pool, one, broker) for one in name_servers), return_exceptions=True):
        if isinstance(found, dict):
            addresses.update(found)
        elif isinstance(found, PeerError):
            silent.append(found)
        else:
            raise found
    if unanswered is not None and len(silent) == len(name_servers):
        unanswered("; ".join(map(str, silent)))
    addresses.pop(own, None)

    async def one(address: str) -> PeerState | PeerError:
        try:
            return await state_of(pool, address, prove)
        except PeerError as error:
            return error

    chosen = sorted(addresses, key=lambda address: (addresses[address], address))[:MEMBERS_MAX]
    return dict(zip(chosen, await asyncio.gather(*map(one, chosen)), strict=True))


async def members(pool: ConnectionPool, name_server: str, broker: str) -> dict[str, int]:
    """Address -> broker id of all brokers of a name, as a name server has them."""
    answer = await _ask(pool, name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
    try:
        table = fastjson.loads(answer.body)["brokerAddrTable"].get(broker)
        rows = {} if table is None else {
            address: whole_number(str(number)) for number, address in table["brokerAddrs"].items()}
    except (fastjson.JsonError, AttributeError, KeyError, TypeError, ValueError):
        raise PeerError(f"{name_server}: its table of brokers cannot be read") from None
    return {address: number for address, number in rows.items()
            if isinstance(address, str) and number is not None}


async def state_of(pool: ConnectionPool, address: str, prove: Prove | None = None) -> PeerState:
    """What the broker at an address says. Raises PeerError."""
    state = await _state(pool, address, {})
    if prove is None or state.history is None:
        return state
    positions = prove.positions(state)
    if positions is None:
        return state
    nonce = secrets.token_hex(16)
    answered = await _state(pool, address, {
        "nonce": nonce, "positions": ",".join(map(str, positions))}) if positions else state
    if not prove.holds(positions, answered.proofs, nonce, address):
        raise UnprovenError(f"{address}: it has not shown that it has the log of epoch "
                            f"{state.history.last.number}, which it tells: it is not believed")
    return state


async def _state(pool: ConnectionPool, address: str, ext: Ext) -> PeerState:
    answer = await _ask(pool, address, RequestCode.GET_REPLICATION, ext)
    try:
        return decode(answer.body)
    except EpochsError as error:
        raise AnsweredError(f"{address}: {error}") from None


async def _ask(pool: ConnectionPool, address: str, code: RequestCode,
               ext: Ext | None = None) -> Command:
    try:
        answer = await pool.invoke(address, request(code, ext or {}), timeout=CALL_S)
    except (RocketMQError, OSError) as error:
        raise PeerError(f"{address}: {error}") from None
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise AnsweredError(f"{address}: it is no broker of mqcore")
    if answer.code != ResponseCode.SUCCESS:
        raise AnsweredError(f"{address}: code {answer.code}, {printable(answer.remark or '')}")
    return answer


def encode(state: PeerState) -> bytes:
    """The answer."""
    return json.dumps({
        "broker": state.broker, "cluster": state.cluster, "brokerId": state.broker_id,
        "role": state.role, "first": state.first, "end": state.end,
        "history": None if state.history is None else epochs.as_json(state.history),
        "election": state.election, "proofs": state.proofs}).encode()


def decode(body: bytes) -> PeerState:
    """Raises EpochsError."""
    try:
        value = fastjson.loads(body)
    except fastjson.JsonError as error:
        raise EpochsError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise EpochsError("expected an object")
    history = value.get("history")
    return PeerState(
        _text(value, "broker"), _text(value, "cluster"), _number(value, "brokerId"),
        _text(value, "role"), _number(value, "first"), _number(value, "end"),
        None if history is None else epochs.decode(json.dumps(history).encode()),
        _election(value.get("election", {})), _proofs(value.get("proofs", {})))


def _election(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > ELECTION_KEYS_MAX or not all(
            isinstance(text, str) and len(text) <= epochs.NAME_LENGTH_MAX
            for text in value.values()):
        raise EpochsError("election: expected texts")
    return {key: text for key, text in value.items() if key.startswith(ELECTION_KEYS)}


def _proofs(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > POSITIONS_MAX or not all(
            isinstance(text, str) for text in value.values()):
        raise EpochsError(f"proofs: expected at most {POSITIONS_MAX} texts")
    return value


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or len(text) > epochs.NAME_LENGTH_MAX:
        raise EpochsError(f"{name}: expected text")
    return text


def _number(value: dict[str, Any], name: str) -> int:
    number = value.get(name)
    if not isinstance(number, int) or not 0 <= number <= epochs.NUMBER_MAX:
        raise EpochsError(f"{name}: expected a whole number from 0 on")
    return number
