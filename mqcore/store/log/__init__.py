"""The commit log: appends, the three flush modes, its segments and their folders."""
from mqcore.store.log import _native as _native
