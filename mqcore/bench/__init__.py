"""
`mqcore bench`: how fast a broker takes and gives messages.

The load generator is native (engine, generator, consume, e2e, on frames and histogram); load drives
it and makes reports, control finds the broker and its topic, commands is the command line.
"""
