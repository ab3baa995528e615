"""The native network loop: connections, sends, pulls, held pulls, transactions."""
