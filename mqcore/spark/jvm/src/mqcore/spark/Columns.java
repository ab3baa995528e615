package mqcore.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The columns of messages: names and types, as `mqcore.spark.columns` has them. */
final class Columns {
  private static final DataType TEXTS = DataTypes.createArrayType(DataTypes.StringType);
  private static final DataType MAP =
      DataTypes.createMapType(DataTypes.StringType, DataTypes.StringType);
  static final String PROPERTIES = "properties";
  static final String GAP_END = "gapEnd";
  static final String BROKEN_BODY = "brokenBody";
  private static final Map<String, DataType> TYPES = new LinkedHashMap<>();
  private static final List<String> EXTRA = List.of(GAP_END, BROKEN_BODY);

  static {
    TYPES.put("topic", DataTypes.StringType);
    TYPES.put("flag", DataTypes.IntegerType);
    TYPES.put("body", DataTypes.BinaryType);
    TYPES.put(PROPERTIES, MAP);
    TYPES.put("brokerName", DataTypes.StringType);
    TYPES.put("queueId", DataTypes.IntegerType);
    TYPES.put("queueOffset", DataTypes.LongType);
    TYPES.put("bornTimestamp", DataTypes.TimestampType);
    TYPES.put("storeTimestamp", DataTypes.TimestampType);
    TYPES.put("msgId", DataTypes.StringType);
    TYPES.put("keys", TEXTS);
    TYPES.put("tags", DataTypes.StringType);
    TYPES.put("commitLogOffset", DataTypes.LongType);
    TYPES.put("sysFlag", DataTypes.IntegerType);
    TYPES.put("bodyCRC", DataTypes.IntegerType);
    TYPES.put("bornHost", DataTypes.StringType);
    TYPES.put("storeHost", DataTypes.StringType);
    TYPES.put("reconsumeTimes", DataTypes.IntegerType);
    TYPES.put("preparedTransactionOffset", DataTypes.LongType);
    TYPES.put(GAP_END, DataTypes.LongType);
    TYPES.put(BROKEN_BODY, DataTypes.BinaryType);
  }

  private Columns() {
  }

  /** The schema without one from the user: all columns, or those that an option names. */
  static StructType schema(String columns, String propertiesAs) {
    List<String> names = new ArrayList<>();
    if (columns == null) {
      names.addAll(TYPES.keySet());
      names.removeAll(EXTRA);
    } else {
      for (String part : columns.split(",")) {
        if (!part.isBlank()) {
          names.add(named(part.strip(), "columns"));
        }
      }
      if (names.isEmpty()) {
        throw SourceException.option("columns: expected at least one name");
      }
      if (names.stream().distinct().count() < names.size()) {
        throw SourceException.option("columns '" + columns + "': a name stands twice");
      }
    }
    boolean asJson = propertiesAs != null
        && propertiesAs.strip().toLowerCase(Locale.ROOT).equals("json");
    StructType found = new StructType();
    for (String name : names) {
      found = found.add(name,
          asJson && name.equals(PROPERTIES) ? DataTypes.StringType : TYPES.get(name));
    }
    return found;
  }

  /** A schema that a user gave, with the columns that are known under their own names. */
  static StructType named(StructType schema) {
    StructType found = new StructType();
    for (StructField field : schema.fields()) {
      String name = TYPES.keySet().stream().filter(field.name()::equalsIgnoreCase).findFirst()
          .orElse(field.name());
      found = found.add(name, field.dataType());
    }
    return found;
  }

  /** Checks such a schema: each column can be read. */
  static StructType checked(StructType schema) {
    StructType found = new StructType();
    for (StructField field : schema.fields()) {
      String name = named(field.name(), "schema");
      DataType type = field.dataType();
      boolean isText = name.equals(PROPERTIES) && type.equals(DataTypes.StringType);
      if (!isText && !type.catalogString().equals(TYPES.get(name).catalogString())) {
        throw SourceException.option("schema: column " + name + " is " + type.catalogString()
            + ": expected " + TYPES.get(name).catalogString()
            + (name.equals(PROPERTIES) ? " or string" : ""));
      }
      found = found.add(name, type);
    }
    return found;
  }

  private static String named(String name, String where) {
    for (String known : TYPES.keySet()) {
      if (known.equalsIgnoreCase(name)) {
        return known;
      }
    }
    throw SourceException.option(where + ": there is no column " + name + ": "
        + Names.hint(name, new ArrayList<>(TYPES.keySet())));
  }

  /** Whether a column is made of properties. */
  static boolean needsItems(StructType schema) {
    for (StructField field : schema.fields()) {
      if (List.of(PROPERTIES, "msgId", "keys", "tags").contains(field.name())) {
        return true;
      }
    }
    return false;
  }

  static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }
}
