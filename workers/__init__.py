"""Each file is a process: what it reads, owns and wakes, and how it restarts."""
