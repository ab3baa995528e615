"""The name server: routes and key-values."""
