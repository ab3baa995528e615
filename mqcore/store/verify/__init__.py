"""`mqcore store verify`: every rule of the format, held against a store at rest."""
