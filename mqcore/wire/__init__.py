"""The remoting protocol: frames, headers, codes, bodies."""
import mqcore.wire._native  # noqa: F401 -- the room's native modules
