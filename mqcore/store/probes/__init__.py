"""For tests: producers that send anything, disks that fail, hang or remember."""
