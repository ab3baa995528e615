"""The page for browsers: what a broker does, and what is wrong with it (docs/page.md)."""
