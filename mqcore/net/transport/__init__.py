"""Connections of a process: sockets, buffers, the epoll loop; their bytes mean nothing here."""
