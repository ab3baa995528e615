"""The shipped settings: each file is the default and explains each key."""
