"""Benchmarks and the side-by-side comparison."""
