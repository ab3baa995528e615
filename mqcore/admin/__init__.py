"""The `mqcore` command."""
