"""Coverage-guided fuzzing of the native decoders: `make fuzz` (HACKING.md has the recipe)."""
