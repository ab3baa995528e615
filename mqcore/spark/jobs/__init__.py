"""Jobs on a Spark session: functions, commands, and `python -m mqcore.spark.jobs.JOB`."""
