"""The numbers of store files and frames, for layout.pyx, which shows them to Python."""
