"""RocketMQ 5 clients: gRPC over HTTP/2, served by what serves the clients of 4.x."""
