"""The remoting protocol: frames, headers, codes, bodies."""
from mqcore.wire import _native as _native
