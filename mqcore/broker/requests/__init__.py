"""The answers to requests, a module for each subject; table.py lists them by code."""
