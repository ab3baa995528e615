"""Connections of a process: sockets, buffers, the epoll loop; their bytes mean nothing here."""
from mqcore.net.transport import _native as _native
