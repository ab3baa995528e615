"""Coverage-guided fuzzing of decoders: `make fuzz` (HACKING.md has the recipe)."""
