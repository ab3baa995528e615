"""What a start finds: where the log ends, which queues can be believed, what is written again."""
