"""The commit log: appends, the three flush modes, its segments and their folders."""
