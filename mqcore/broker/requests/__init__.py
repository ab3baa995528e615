"""The answers to requests, a module for each subject; ../handlers.py says which code is whose."""
