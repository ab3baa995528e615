"""
`mqcore` whose serving process has the binary front beside RocketMQ's:

    python -m tests.net.fronted PORT up -c FILE
"""
from __future__ import annotations

import socket
import sys
from typing import Any

from mqcore.admin.cli import main
from mqcore.net.probes.binary_front import BinaryFront
from mqcore.workers.serving import pull_serving


class Fronted(BinaryFront):
    port = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        listener.setblocking(False)
        self.listen(listener)


if __name__ == "__main__":
    Fronted.port = int(sys.argv.pop(1))
    pull_serving.PullServing.loop = Fronted
    main()
