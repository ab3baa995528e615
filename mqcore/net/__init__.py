"""The native network loop: connections, sends, pulls, held pulls, load generator."""
