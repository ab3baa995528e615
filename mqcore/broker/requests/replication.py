"""What a broker says of its log and its epochs (GET_REPLICATION): a request that only ours know."""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, Request, refused
from mqcore.replication import epochs
from mqcore.replication.epochs import EpochsError
from mqcore.replication.peers import ELECTION_KEYS, PeerState, encode
from mqcore.wire.codes import ResponseCode


def replication(core: Core, _request: Request) -> Answer:
    """GET_REPLICATION (32001): names, role, ends of the log, epochs, as JSON (peers.py)."""
    try:
        standing = epochs.read(core.settings.store_root)
    except (EpochsError, OSError) as error:
        return refused(ResponseCode.SYSTEM_ERROR, f"the epochs cannot be read: {error}")
    settings = core.settings
    first, end = core.ports.store.log_range()
    return Answer(ResponseCode.SUCCESS, body=encode(PeerState(
        settings.broker.name, settings.broker.cluster, settings.broker_id,
        settings.role.value, first, end,
        None if standing is None else standing.history,
        {key: value for key, value in core.ports.figures.runtime().items()
         if key.startswith(ELECTION_KEYS)})))
