"""What rows of a table are: columns of a frame, or files that tasks have written already."""
from __future__ import annotations

from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mqcore.spark.columns import BROKEN_BODY, COLUMNS, MAP, TEXTS, Picked
from mqcore.spark.errors import OptionError
from mqcore.spark.lake.files import Form
from mqcore.spark.lake.opening import open_table
from mqcore.spark.lake.options import PARTS
from mqcore.spark.lake.table import DAY, DAY_OF, TOPIC, Shape, Table
from mqcore.spark.options import Options

# The columns of rows that say which files were written, as DataFile in JSON.
FILE: Final = "mqcoreFile"
FILE_ROWS: Final = "mqcoreRows"
MESSAGES: Final = Picked(tuple((column.name, column.type) for column in COLUMNS
                               if column.name != BROKEN_BODY))
_TYPES: Final = {
    "string": StringType(), "int": IntegerType(), "bigint": LongType(), "binary": BinaryType(),
    "timestamp": TimestampType(), MAP: MapType(StringType(), StringType()),
    TEXTS: ArrayType(StringType())}


def are_files(schema: Any) -> bool:
    return [field.name for field in schema.fields] == [FILE, FILE_ROWS]


def table_of(options: Options, path: Any) -> Table:
    """The table that options name. Raises OptionError."""
    return open_table(path, options["tableFormat"], catalog=options["icebergCatalog"],
                      name=options["icebergTable"])


def form_of(options: Options) -> Form:
    return Form(options["compression"], options["compressionLevel"], options["fileBytes"],
                options["rowGroupBytes"])


def shape_of(options: Options, path: Any, schema: Any = None) -> Shape:
    """
    What files of a table have.

    schema  a StructType of rows; None, or one of files: messages
    Raises OptionError.
    """
    if schema is None or are_files(schema):
        schema = StructType([StructField(name, _TYPES[kind]) for name, kind in MESSAGES.fields])
    table = table_of(options, path)
    return Shape(to_arrow_schema(schema, timezone="UTC"),
                 _parts(options, schema, table.parts() if table.exists() else None))


def _parts(options: Options, schema: Any, known: tuple[str, ...] | None) -> tuple[str, ...]:
    there = {field.name: field.dataType.simpleString() for field in schema.fields}
    wanted = {TOPIC: (TOPIC, "string"), DAY: (DAY_OF, "timestamp")}
    if options.has("partitionBy") or known is not None:
        chosen: tuple[str, ...] = options["partitionBy"] or known or ()
        for part in chosen:
            name, kind = wanted[part]
            if there.get(name) != kind:
                raise OptionError(f"partitionBy {part} needs a column {name}, {kind}: give another"
                                  " partitionBy, or none")
    else:
        chosen = tuple(part for part in PARTS if there.get(wanted[part][0]) == wanted[part][1])
    if DAY in chosen and DAY in there:
        raise OptionError("the frame has a column day: rename it, or leave day out of partitionBy")
    return chosen
