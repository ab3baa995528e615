from socket import socket

from mqcore.net.serving.loop import ServingLoop

class BinaryFront(ServingLoop):
    def listen(self, listener: socket) -> None: ...
