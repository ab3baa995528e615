"""The writer's process: the commit log, its clock, and the disk that it is on."""
