"""The `mqcore` command: each noun and verb, as a process and in this one."""
