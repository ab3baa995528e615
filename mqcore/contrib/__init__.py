"""The client in other people's frameworks; each part needs the extra of its name (docs/client/
frameworks.md)."""
