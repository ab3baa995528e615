"""Name servers, routes, connections."""
