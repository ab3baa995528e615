"""Functions that take any bytes. Each module's TARGETS: name -> address of a function."""
