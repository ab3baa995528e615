"""Frames that Python answers: the connections of a name server."""
