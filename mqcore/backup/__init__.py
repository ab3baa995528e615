"""Backups of a store, running or at rest, and stores made from them (docs/backup.md)."""
