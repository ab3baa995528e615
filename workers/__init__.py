"""One file is one process; no rules inside."""
