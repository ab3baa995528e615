"""What the processes of a run have from their supervisor, by fork."""
from __future__ import annotations

import socket
from dataclasses import dataclass, field

from mqcore.acl.kept import KeptFiles
from mqcore.acl.rules import Account
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.model import Settings
from mqcore.shm.segment import Segment
from mqcore.workers.process.secured import KeptTls


@dataclass
class Listeners:
    """The sockets that processes inherit: (socket, is the fast port) for each serving process."""

    serving: list[list[tuple[socket.socket, bool]]] = field(default_factory=list)
    namesrv: list[socket.socket] = field(default_factory=list)
    replication: list[socket.socket] = field(default_factory=list)

    def close(self) -> None:
        for each in [*(one for sockets in self.serving for one, _ in sockets), *self.namesrv,
                     *self.replication]:
            each.close()


@dataclass(frozen=True)
class Inherited:
    """
    settings: those that the run was started with; changes: of them, by request; embedded_namesrv:
    whether a name server runs beside the broker; namesrv_account: as which the broker registers
    there (None: it asks nobody); kept_access: the access files in force (None: no access control);
    rejoin_from: before then a log that was overtaken stays as it is (time.monotonic); kept_tls: the
    TLS files in force; beats: whether the name server shows that it turns.
    """

    settings: Settings
    changes: ChangedSettings
    segment: Segment
    listeners: Listeners
    embedded_namesrv: bool
    namesrv_account: Account | None
    kept_access: KeptFiles | None
    rejoin_from: float = 0.0
    kept_tls: KeptTls = field(default_factory=KeptTls)
    beats: bool = False
