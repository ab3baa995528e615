"""What a start finds: where the log ends, which queues can be believed, what is written again."""
import mqcore.store.recovery._native  # noqa: F401 -- the room's native modules
