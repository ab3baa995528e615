"""`make demo`: a broker, two clients that send orders, a group of two that reads them, two kills.

__main__ tells the story, processes starts and ends what takes part, clients is what those processes
run, orders makes the events, ledger compares what was acknowledged with what was consumed.
"""
