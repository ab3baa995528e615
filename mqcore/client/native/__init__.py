"""What the client does natively: sends and their answers, frames, records, columns."""
import mqcore.client.native._native  # noqa: F401 -- the room's native modules
