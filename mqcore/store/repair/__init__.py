"""`mqcore store repair`: makes a damaged store at rest start again; keeps what it takes away."""
