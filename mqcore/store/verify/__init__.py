"""`mqcore verify`: every rule of the format, held against a store at rest."""
import mqcore.store.verify._native  # noqa: F401 -- the room's native modules
