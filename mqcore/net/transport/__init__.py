"""Connections of a process: sockets, buffers, the epoll loop; their bytes mean nothing here."""
import mqcore.net.transport._native  # noqa: F401 -- the room's native modules
