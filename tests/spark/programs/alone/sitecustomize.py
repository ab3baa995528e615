"""
Python runs this first, in each process on a cluster under test: there is no project on its path,
only the folder above this one.
"""
from parents import begin

begin()
