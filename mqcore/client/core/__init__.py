"""The client without I/O: state machines and formats, with the time as an argument."""
