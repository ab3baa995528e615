"""Shows the reasons to Python."""
