"""Processes that clients connect to: pull-serving-N and the name server."""
