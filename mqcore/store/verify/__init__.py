"""`mqcore verify`: every rule of the format, held against a store at rest."""
from mqcore.store.verify import _native as _native
