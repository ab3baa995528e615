"""Shared by all roles: start and end, the client instance, blocking classes."""
