"""A broker's log, epochs and changed tables for others: requests that only ours know."""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, FieldError, Fields, Request, answers, refused
from mqcore.broker.tables.table_waits import Versions
from mqcore.replication import epochs
from mqcore.replication.epochs import EpochsError
from mqcore.replication.peers import ELECTION_KEYS, PeerState, encode
from mqcore.replication.proof import ProofError, asked_for, digest
from mqcore.wire.codes import (
    GROUPS_KNOWN,
    OFFSETS_KNOWN,
    TOPICS_KNOWN,
    WAIT_MS,
    RequestCode,
    ResponseCode,
)

VERSION_LENGTH_MAX = 64


@answers(RequestCode.GET_REPLICATION)
def replication(core: Core, request: Request) -> Answer:
    """
    GET_REPLICATION (32001): names, role, ends of the log, epochs, as JSON (peers.py); with `nonce`
    and `positions` also digests of the log (proof.py).
    """
    try:
        standing = epochs.read(core.settings.store_root)
    except (EpochsError, OSError) as error:
        return refused(ResponseCode.SYSTEM_ERROR, f"the epochs cannot be read: {error}")
    settings = core.settings
    first, end = core.ports.store.log_range()
    history = None if standing is None else standing.history
    ext = request.command.ext or {}
    proofs = {}
    if ext.get("nonce") is not None:
        nonce = ext["nonce"] or ""
        try:
            for position in asked_for(nonce, ext.get("positions") or "", history, first, end):
                proofs[str(position)] = digest(
                    settings.log_folders, settings.store.segment_size_bytes, first, position, nonce,
                    settings.advertised_addr)
        except (ProofError, OSError) as error:
            return refused(ResponseCode.SYSTEM_ERROR, f"the log is not shown: {error}")
    return Answer(ResponseCode.SUCCESS, body=encode(PeerState(
        settings.broker.name, settings.broker.cluster, settings.broker_id,
        settings.role.value, first, end,
        history,
        {key: value for key, value in core.ports.figures.runtime().items()
         if key.startswith(ELECTION_KEYS)}, proofs)))


@answers(RequestCode.HEAR_OF_TABLES)
def hear_of_tables(core: Core, request: Request) -> Answer | None:
    """HEAR_OF_TABLES (32002): answered when the tables are others than a slave knows."""
    fields = Fields.of(request.command)
    known = Versions(fields.text(TOPICS_KNOWN), fields.text(GROUPS_KNOWN),
                     fields.ext.get(OFFSETS_KNOWN))
    if any(len(text or "") > VERSION_LENGTH_MAX for text in known):
        raise FieldError(f"a version has more than {VERSION_LENGTH_MAX} characters")
    wait_ms = fields.i32(WAIT_MS)
    if request.command.is_oneway:
        return None                    # none is to be told
    command = request.command          # it may be long, and is not read again
    command.ext, command.remark, command.body = None, None, b""
    return core.waits.add(request, known, wait_ms)
