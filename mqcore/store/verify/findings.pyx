"""Shows the kinds of findings to Python (findings.pxd has them)."""
