"""The coordinator's process: rules of mqcore/broker, and their hands on shared memory."""
