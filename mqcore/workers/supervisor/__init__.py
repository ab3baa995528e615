"""The parent of all processes: starts them, watches them, stops them."""
