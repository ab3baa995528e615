package mqcore.spark;

import java.io.ByteArrayOutputStream;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Columns over the rows of a batch: a value is made when Spark asks for it. */
final class Vectors {
  private static final int TICKS = 1_000;               // of Spark's times, in a millisecond
  private static final byte[] DIGITS = Columns.ascii("0123456789ABCDEF");

  private Vectors() {
  }

  static ColumnVector[] of(StructType schema, Rows rows, Queue queue) {
    ColumnVector[] made = new ColumnVector[schema.length()];
    for (int index = 0; index < made.length; index++) {
      made[index] = one(schema.fields()[index], rows, queue);
    }
    return made;
  }

  private static ColumnVector one(StructField field, Rows rows, Queue queue) {
    return switch (field.name()) {
      case "topic" -> new Text(queue.topic());
      case "brokerName" -> new Text(queue.broker());
      case "flag" -> new Ints(rows, Records.FLAG, false);
      case "queueId" -> new Ints(rows, Records.QUEUE_ID, false);
      case "sysFlag" -> new Ints(rows, Records.SYS_FLAG, false);
      case "bodyCRC" -> new Ints(rows, Records.BODY_CRC, false);
      case "reconsumeTimes" -> new Ints(rows, 0, true);
      case "queueOffset" -> new Longs(rows, Records.QUEUE_OFFSET, false);
      case "commitLogOffset" -> new Longs(rows, Records.LOG_OFFSET, false);
      case "preparedTransactionOffset" -> new Longs(rows, 4, true);
      case "bornTimestamp" -> new Times(rows, false);
      case "storeTimestamp" -> new Times(rows, true);
      case "bornHost" -> new Hosts(rows, false);
      case "storeHost" -> new Hosts(rows, true);
      case "body" -> new Bodies(rows);
      case Columns.BROKEN_BODY -> new BrokenBodies(rows);
      case Columns.GAP_END -> new Nulls(DataTypes.LongType);
      case "tags" -> new Tags(rows);
      case "keys" -> new Keys(rows, field.dataType());
      case "msgId" -> new Ids(rows);
      default -> field.dataType().equals(DataTypes.StringType) ? new Json(rows)
          : new Properties(rows, field.dataType());
    };
  }

  /** One row that says which offsets are not there: all else in it is null. */
  static ColumnVector[] gap(StructType schema, Queue queue, long begin, long end) {
    ColumnVector[] made = new ColumnVector[schema.length()];
    for (int index = 0; index < made.length; index++) {
      StructField field = schema.fields()[index];
      made[index] = switch (field.name()) {
        case "topic" -> new Text(queue.topic());
        case "brokerName" -> new Text(queue.broker());
        case "queueId" -> new Number(field.dataType(), queue.id());
        case "queueOffset" -> new Number(field.dataType(), begin);
        case Columns.GAP_END -> new Number(field.dataType(), end);
        default -> new Nulls(field.dataType());
      };
    }
    return made;
  }

  private abstract static class Vector extends ColumnVector {
    Vector(DataType type) {
      super(type);
    }

    @Override public void close() { }

    @Override public boolean hasNull() {
      return false;
    }

    @Override public int numNulls() {
      return 0;
    }

    @Override public boolean isNullAt(int row) {
      return false;
    }

    private UnsupportedOperationException wrong() {
      return new UnsupportedOperationException("a column of type " + dataType().sql());
    }

    @Override public boolean getBoolean(int row) {
      throw wrong();
    }

    @Override public byte getByte(int row) {
      throw wrong();
    }

    @Override public short getShort(int row) {
      throw wrong();
    }

    @Override public int getInt(int row) {
      throw wrong();
    }

    @Override public long getLong(int row) {
      throw wrong();
    }

    @Override public float getFloat(int row) {
      throw wrong();
    }

    @Override public double getDouble(int row) {
      throw wrong();
    }

    @Override public ColumnarArray getArray(int row) {
      throw wrong();
    }

    @Override public ColumnarMap getMap(int row) {
      throw wrong();
    }

    @Override public Decimal getDecimal(int row, int precision, int scale) {
      throw wrong();
    }

    @Override public UTF8String getUTF8String(int row) {
      throw wrong();
    }

    @Override public byte[] getBinary(int row) {
      throw wrong();
    }

    @Override public ColumnVector getChild(int ordinal) {
      throw wrong();
    }
  }

  private static final class Nulls extends Vector {
    Nulls(DataType type) {
      super(type);
    }

    @Override public boolean hasNull() {
      return true;
    }

    @Override public int numNulls() {
      return Integer.MAX_VALUE;
    }

    @Override public boolean isNullAt(int row) {
      return true;
    }
  }

  private static final class Number extends Vector {
    private final long value;

    Number(DataType type, long value) {
      super(type);
      this.value = value;
    }

    @Override public int getInt(int row) {
      return (int) value;
    }

    @Override public long getLong(int row) {
      return value;
    }
  }

  private static final class Text extends Vector {
    private final UTF8String value;

    Text(String value) {
      super(DataTypes.StringType);
      this.value = UTF8String.fromString(value);
    }

    @Override public UTF8String getUTF8String(int row) {
      return value;
    }
  }

  private abstract static class OfRows extends Vector {
    final Rows rows;

    OfRows(Rows rows, DataType type) {
      super(type);
      this.rows = rows;
    }

    int place(int row, int field, boolean isBehindHosts) {
      return field + (isBehindHosts ? Records.behindHosts(rows.bytes[row], rows.at[row])
          : rows.at[row]);
    }
  }

  private static final class Ints extends OfRows {
    private final int field;
    private final boolean isBehindHosts;

    Ints(Rows rows, int field, boolean isBehindHosts) {
      super(rows, DataTypes.IntegerType);
      this.field = field;
      this.isBehindHosts = isBehindHosts;
    }

    @Override public int getInt(int row) {
      return Records.i32(rows.bytes[row], place(row, field, isBehindHosts));
    }
  }

  private static final class Longs extends OfRows {
    private final int field;
    private final boolean isBehindHosts;

    Longs(Rows rows, int field, boolean isBehindHosts) {
      super(rows, DataTypes.LongType);
      this.field = field;
      this.isBehindHosts = isBehindHosts;
    }

    @Override public long getLong(int row) {
      return Records.i64(rows.bytes[row], place(row, field, isBehindHosts));
    }
  }

  private static final class Times extends OfRows {
    private final boolean isStored;

    Times(Rows rows, boolean isStored) {
      super(rows, DataTypes.TimestampType);
      this.isStored = isStored;
    }

    @Override public long getLong(int row) {
      byte[] bytes = rows.bytes[row];
      int at = rows.at[row];
      return TICKS * Records.i64(bytes, isStored
          ? at + Records.BORN_HOST + Records.bornHostSize(bytes, at) : at + Records.BORN_TIME);
    }
  }

  private static final class Hosts extends OfRows {
    private final boolean isStored;
    private byte[] last = {};
    private UTF8String made;

    Hosts(Rows rows, boolean isStored) {
      super(rows, DataTypes.StringType);
      this.isStored = isStored;
    }

    @Override public UTF8String getUTF8String(int row) {
      byte[] bytes = rows.bytes[row];
      int at = rows.at[row];
      int size = Records.bornHostSize(bytes, at);
      int begin = at + Records.BORN_HOST;
      if (isStored) {
        begin += size + 8;
        size = Records.storeHostSize(bytes, at);
      }
      if (!java.util.Arrays.equals(bytes, begin, begin + size, last, 0, last.length)) {
        last = java.util.Arrays.copyOfRange(bytes, begin, begin + size);
        made = UTF8String.fromString(Hostname.of(last));
      }
      return made;
    }
  }

  private static final class Bodies extends OfRows {
    Bodies(Rows rows) {
      super(rows, DataTypes.BinaryType);
    }

    @Override public boolean hasNull() {
      return rows.anyCompressed;
    }

    @Override public boolean isNullAt(int row) {
      return rows.anyCompressed && rows.body(row) == null;
    }

    @Override public byte[] getBinary(int row) {
      return rows.body(row);
    }
  }

  private static final class BrokenBodies extends OfRows {
    BrokenBodies(Rows rows) {
      super(rows, DataTypes.BinaryType);
    }

    @Override public boolean hasNull() {
      return true;
    }

    @Override public boolean isNullAt(int row) {
      return !rows.anyCompressed || rows.body(row) != null;
    }

    @Override public byte[] getBinary(int row) {
      return isNullAt(row) ? null : rows.stored(row);
    }
  }

  private static final class Tags extends OfRows {
    private static final byte[] NAME = Columns.ascii("TAGS");

    Tags(Rows rows) {
      super(rows, DataTypes.StringType);
    }

    @Override public boolean hasNull() {
      return true;
    }

    @Override public boolean isNullAt(int row) {
      return rows.item(row, NAME) < 0;
    }

    @Override public UTF8String getUTF8String(int row) {
      int item = rows.item(row, NAME);
      return item < 0 ? null : rows.value(item);
    }
  }

  private static final class Ids extends OfRows {
    private static final byte[] NAME = Columns.ascii("UNIQ_KEY");

    Ids(Rows rows) {
      super(rows, DataTypes.StringType);
    }

    @Override public UTF8String getUTF8String(int row) {
      int item = rows.item(row, NAME);
      if (item >= 0) {
        return rows.value(item);
      }
      byte[] bytes = rows.bytes[row];
      int at = rows.at[row];
      int size = Records.storeHostSize(bytes, at);
      int host = at + Records.BORN_HOST + Records.bornHostSize(bytes, at) + 8;
      byte[] made = new byte[2 * size + 16];
      for (int index = 0; index < size + 8; index++) {
        int one = bytes[index < size ? host + index : at + Records.LOG_OFFSET + index - size];
        made[2 * index] = DIGITS[one >> 4 & 15];
        made[2 * index + 1] = DIGITS[one & 15];
      }
      return UTF8String.fromBytes(made);
    }
  }

  private static final class Keys extends OfRows {
    private static final byte[] NAME = Columns.ascii("KEYS");
    private UTF8String[] found = new UTF8String[16];
    private final Vector child = new Vector(DataTypes.StringType) {
      @Override public UTF8String getUTF8String(int index) {
        return found[index];
      }
    };

    Keys(Rows rows, DataType type) {
      super(rows, type);
    }

    @Override public ColumnarArray getArray(int row) {
      int item = rows.item(row, NAME);
      int count = 0;
      if (item >= 0) {
        byte[] bytes = rows.itemBytes[item];
        int end = rows.valueEnds[item];
        for (int at = rows.nameEnds[item] + 1; at < end;) {
          int stop = at;
          while (stop < end && !isGap(bytes[stop])) {
            stop++;
          }
          if (stop > at) {
            if (count == found.length) {
              found = java.util.Arrays.copyOf(found, 2 * count);
            }
            found[count++] = UTF8String.fromBytes(bytes, at, stop - at);
          }
          at = stop + 1;
        }
      }
      return new ColumnarArray(child, 0, count);
    }

    /** Java's and Python's blanks that occur in ASCII. */
    private static boolean isGap(byte one) {
      return one == ' ' || one >= 9 && one <= 13 || one >= 28 && one <= 31;
    }
  }

  private static final class Properties extends OfRows {
    private final Vector names = new Vector(DataTypes.StringType) {
      @Override public UTF8String getUTF8String(int item) {
        return rows.name(item);
      }
    };
    private final Vector values = new Vector(DataTypes.StringType) {
      @Override public UTF8String getUTF8String(int item) {
        return rows.value(item);
      }
    };

    Properties(Rows rows, DataType type) {
      super(rows, type);
    }

    @Override public ColumnarMap getMap(int row) {
      return new ColumnarMap(names, values, rows.itemRows[row],
          rows.itemRows[row + 1] - rows.itemRows[row]);
    }
  }

  private static final class Json extends OfRows {
    Json(Rows rows) {
      super(rows, DataTypes.StringType);
    }

    @Override public UTF8String getUTF8String(int row) {
      ByteArrayOutputStream made = new ByteArrayOutputStream(256);
      made.write('{');
      for (int item = rows.itemRows[row]; item < rows.itemRows[row + 1]; item++) {
        if (made.size() > 1) {
          made.write(',');
        }
        byte[] bytes = rows.itemBytes[item];
        put(made, bytes, rows.names[item], rows.nameEnds[item]);
        made.write(':');
        put(made, bytes, rows.nameEnds[item] + 1, rows.valueEnds[item]);
      }
      made.write('}');
      return UTF8String.fromBytes(made.toByteArray());
    }

    private static void put(ByteArrayOutputStream made, byte[] bytes, int begin, int end) {
      made.write('"');
      for (int at = begin; at < end; at++) {
        int one = bytes[at] & 0xff;
        if (one < 0x20) {
          made.writeBytes(Columns.ascii(String.format("\\u%04x", one)));
        } else {
          if (one == '"' || one == '\\') {
            made.write('\\');
          }
          made.write(one);
        }
      }
      made.write('"');
    }
  }
}
