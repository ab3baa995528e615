"""Helpers that several test folders and perf/ share; nothing in mqcore imports them."""
