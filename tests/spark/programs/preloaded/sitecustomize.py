"""Python runs this first, in each process of a session under test."""
from tests.spark.programs.parents import begin

begin()
