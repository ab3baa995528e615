"""
Nothing acknowledged is lost, whatever breaks between a master and its slaves, and whoever leads.

    history.py, checker.py    what clients were told and what they read; what must be true of that
    traffic.py                clients that write such a history
    relay.py, liar.py         links that fail when told; slaves that lie
    torment.py                the dice, the count of faults and the verdict on a run
    lives.py                  topics that are deleted and made again
    brokers.py                a set of brokers, and what an operator does with it
    stock.py                  a chain of brokers, stock ones among them
    namespaces.py             hosts of their own
    test_*.py                 runs, each with its dice

A run ends with a reading of all queues at each broker, and the checker looks at the whole history.
One that is bad is written to a file whose place the failure says, which

    python -m tests.replication.faults.checker FILE

judges again. MQCORE_TEST_SEED repeats the dice, not the moments. With SOAK_SECONDS (`make soak`)
each test has run after run, with the next seed, for as long.
"""
