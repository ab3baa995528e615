"""A module for each noun of the `mqcore` command; each verb returns a View or a Plan."""
