"""What rows hold, whatever files they are in and in whatever order: how many, and a hash."""
from __future__ import annotations

from typing import Any


def content(frame: Any) -> tuple[int, str]:
    """Rows of a frame, and the sum of their hashes over all columns: equal for the same rows."""
    from pyspark.sql.functions import array_sort, coalesce, count, lit, map_entries, xxhash64
    from pyspark.sql.functions import sum as sum_of

    columns = [array_sort(map_entries(field.name)).alias(field.name)
               if field.dataType.typeName() == "map" else frame[field.name]
               for field in frame.schema.fields]
    # one for each column says whether it is there: a hash passes over nulls
    there = [frame[field.name].isNull() for field in frame.schema.fields]
    hashes = xxhash64(*columns, *there).cast("decimal(38,0)")
    row = frame.agg(count(lit(1)).alias("rows"),
                    coalesce(sum_of(hashes), lit(0)).cast("string").alias("hash")).first()
    return row["rows"], row["hash"]
