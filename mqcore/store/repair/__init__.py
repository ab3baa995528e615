"""`mqcore repair`: makes a damaged store at rest start again, and keeps what it takes away."""
