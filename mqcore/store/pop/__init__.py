"""Messages that are acknowledged one by one (POP): state.pxd has the structs, pop.pxd the rules."""
