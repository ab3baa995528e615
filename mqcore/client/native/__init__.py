"""What the client does natively: sends and their answers, frames, records, columns."""
from mqcore.client.native import _native as _native
