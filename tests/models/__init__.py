"""The lock-free protocols of shared memory, small and whole: every order of steps is looked at."""
