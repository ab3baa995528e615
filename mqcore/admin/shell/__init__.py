"""The frame of every command: contexts, connections, output, confirmation, exit statuses."""
