package mqcore.spark;

import java.io.Serializable;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The options of reads and writes: one table, from which they are checked and parsed.
 *
 * Names, defaults and places are those of `mqcore.spark.options.ROCKETMQ`;
 * tests/spark/test_jvm_source.py compares the two tables.
 */
final class Settings implements Serializable {
  enum Place {
    BATCH("batch read"), STREAM("stream read"), WRITE("write");

    final String shown;

    Place(String shown) {
      this.shown = shown;
    }
  }

  private static final Set<Place> ALL = EnumSet.allOf(Place.class);
  private static final Set<Place> READ = EnumSet.of(Place.BATCH, Place.STREAM);
  private static final Set<Place> BATCH = EnumSet.of(Place.BATCH);
  private static final Set<Place> STREAM = EnumSet.of(Place.STREAM);
  private static final Set<Place> WRITE = EnumSet.of(Place.WRITE);

  private interface Parse {
    Object of(String name, String text);
  }

  private record Known(String name, Parse parse, String fallback, Set<Place> on,
      List<String> also) {
  }

  private static final Pattern DURATION = Pattern.compile("(\\d+(?:\\.\\d+)?)\\s*(ms|s|m|h|d)?");
  private static final Pattern SIZE =
      Pattern.compile("(\\d{1,18})\\s*([kmgt]?)i?b?", Pattern.CASE_INSENSITIVE);
  private static final Map<String, Long> MILLIS =
      Map.of("ms", 1L, "s", 1_000L, "m", 60_000L, "h", 3_600_000L, "d", 86_400_000L);
  /** What Spark, or a user's habit with other sources, puts beside the options. */
  private static final Set<String> PASSED_OVER =
      Set.of("path", "checkpointlocation", "queryname");

  private static final Parse TEXT = (name, text) -> {
    if (text.isBlank()) {
      throw SourceException.option(name + ": expected a value, not '" + text + "'");
    }
    return text.strip();
  };
  private static final Parse NAMES = (name, text) -> {
    LinkedHashSet<String> found = new LinkedHashSet<>();
    for (String part : text.split(",")) {
      if (!part.isBlank()) {
        found.add(part.strip());
      }
    }
    if (found.isEmpty()) {
      throw SourceException.option(name + ": expected at least one name");
    }
    return new ArrayList<>(found);
  };
  private static final Parse TRUTH = (name, text) -> {
    String word = text.strip().toLowerCase(Locale.ROOT);
    if (!word.equals("true") && !word.equals("false")) {
      throw SourceException.option(name + " '" + text + "': expected true or false");
    }
    return word.equals("true");
  };

  private static final Map<String, Known> TABLE = new LinkedHashMap<>();
  private static final Map<String, Known> BY_KEY = new HashMap<>();

  static {
    add("nameServer", TEXT, null, ALL, "namesrv");
    add("rocketmq.accessKey", TEXT, null, ALL);
    add("rocketmq.secretKey", TEXT, null, ALL);
    add("rocketmq.securityToken", TEXT, null, ALL);
    add("rocketmq.namespace", TEXT, "", ALL);
    add("rocketmq.tls", TRUTH, "false", ALL);
    add("rocketmq.connectTimeout", Settings::duration, "3s", ALL);
    add("rocketmq.callTimeout", Settings::duration, "3s", ALL);
    add("topic", TEXT, null, ALL);
    add("subscribe", NAMES, null, READ, "topics");
    add("subscribePattern", TEXT, null, READ, "topicsPattern");
    add("assign", TEXT, null, READ);
    add("group", TEXT, null, ALL);
    add("subExpression", TEXT, "*", READ);
    add("subExpressionType", oneOf("tag", "sql92"), "tag", READ);
    add("startingOffsets", TEXT, null, READ);
    add("startingTimestamp", Settings::moment, null, READ);
    add("startingOffsetsByTimestamp", TEXT, null, READ);
    add("startingOffsetsByTimestampStrategy", oneOf("error", "latest"), "error", READ);
    add("endingOffsets", TEXT, "latest", BATCH);
    add("endingTimestamp", Settings::moment, null, BATCH);
    add("endingOffsetsByTimestamp", TEXT, null, BATCH);
    add("minPartitions", number(1, 1_000_000), null, READ);
    add("maxRecordsPerPartition", number(1, Long.MAX_VALUE), null, READ);
    add("maxOffsetsPerTrigger", number(1, Long.MAX_VALUE), null, STREAM);
    add("minOffsetsPerTrigger", number(1, Long.MAX_VALUE), null, STREAM);
    add("maxTriggerDelay", Settings::duration, "900s", STREAM);
    add("maxBytesPerTrigger", Settings::size, null, STREAM);
    add("columns", TEXT, null, READ);
    add("propertiesAs", oneOf("map", "json"), "map", READ);
    add("pushFilters", TRUTH, "false", BATCH);
    add("failOnDataLoss", TRUTH, "true", READ);
    add("stateDir", TEXT, null, STREAM);
    add("pollInterval", Settings::duration, "0.1s", STREAM);
    add("pullsInFlight", number(1, 256), "16", READ);
    add("rowsPerBatch", number(1, 1 << 20), "4096", READ);
    add("bytesPerBatch", Settings::size, "4194304", READ);
    add("timeout", Settings::duration, "30s", ALL);
    add("deliveryGuarantee", oneOf("at-least-once", "effectively-once"), "at-least-once", WRITE);
    add("identity", TEXT, null, WRITE);
    add("rowsPerSecond", number(1, Long.MAX_VALUE), null, WRITE);
    add("nullBodies", oneOf("fail", "skip"), "fail", WRITE);
    add("copies", TRUTH, "false", WRITE);
    add("sendBatchRows", number(1, 10_000), "512", WRITE);
    add("sendBatchBytes", Settings::size, "524288", WRITE);
    add("sendsInFlight", number(1, 256), "8", WRITE);
    add("retries", number(0, 100), "5", WRITE);
  }

  private final HashMap<String, Object> values = new HashMap<>();
  private final TreeSet<String> given = new TreeSet<>();

  /** The options as a user gave them, with their own spelling. Throws for what cannot be. */
  Settings(Map<String, String> options, Place place) {
    for (Known known : TABLE.values()) {
      values.put(known.name, known.fallback == null ? null
          : known.fallback.isEmpty() ? "" : known.parse.of(known.name, known.fallback));
    }
    Map<String, String> seen = new HashMap<>();
    for (Map.Entry<String, String> each : options.entrySet()) {
      String key = each.getKey();
      String low = key.toLowerCase(Locale.ROOT);
      Known known = BY_KEY.get(low);
      if (known == null) {
        if (PASSED_OVER.contains(low)) {
          continue;
        }
        throw SourceException.option(Source.NAME + ": option " + key + " is unknown: "
            + Names.hint(low, names()));
      }
      if (!known.on.contains(place)) {
        throw SourceException.option(Source.NAME + ": option " + known.name
            + " has no meaning for a " + place.shown + ", only for a " + places(known.on));
      }
      String before = seen.put(known.name, key);
      if (before != null) {
        throw SourceException.option(Source.NAME + ": options " + before + " and " + key
            + " are the same: give one of them");
      }
      given.add(known.name);
      values.put(known.name, known.parse.of(known.name, each.getValue()));
    }
  }

  private static String places(Set<Place> on) {
    return String.join(" or ", on.stream().map(one -> one.shown).toList());
  }

  /**
   * The options of a catalog's table and those of a query, which count first. Those of the table
   * that have a meaning elsewhere only are left out: one table is read, streamed and written.
   */
  static TreeMap<String, String> both(Map<String, String> own, Map<String, String> options,
      Place place) {
    TreeMap<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    own.forEach((name, value) -> {
      Known known = BY_KEY.get(name.toLowerCase(Locale.ROOT));
      if (known == null || known.on.contains(place)) {
        all.put(name, value);
      }
    });
    all.putAll(options);
    return all;
  }

  /** The table as text, a line for each option: name, also, places, default. For tests. */
  public static List<String> table() {
    List<String> lines = new ArrayList<>();
    for (Known one : TABLE.values()) {
      lines.add(String.join("\t", one.name, String.join(",", one.also),
          places(one.on), one.fallback == null ? "-" : one.fallback));
    }
    return lines;
  }

  boolean has(String name) {
    return given.contains(name);
  }

  String text(String name) {
    return (String) values.get(name);
  }

  @SuppressWarnings("unchecked")
  List<String> names(String name) {
    return (List<String>) values.get(name);
  }

  boolean truth(String name) {
    return (Boolean) values.get(name);
  }

  /** A number, size, time in milliseconds; null without one. */
  Long number(String name) {
    return (Long) values.get(name);
  }

  private static List<String> names() {
    return new ArrayList<>(TABLE.keySet());
  }

  private static void add(String name, Parse parse, String fallback, Set<Place> on,
      String... also) {
    Known known = new Known(name, parse, fallback, on, List.of(also));
    TABLE.put(name, known);
    BY_KEY.put(name.toLowerCase(Locale.ROOT), known);
    for (String other : also) {
      BY_KEY.put(other.toLowerCase(Locale.ROOT), known);
    }
  }

  private static Parse number(long low, long high) {
    return (name, text) -> {
      long found;
      try {
        found = Long.parseLong(text.strip());
      } catch (NumberFormatException error) {
        found = low - 1;
      }
      if (found < low || found > high) {
        throw SourceException.option(name + " '" + text + "': expected a whole number, " + low
            + " to " + high);
      }
      return found;
    };
  }

  private static Parse oneOf(String... words) {
    return (name, text) -> {
      String word = text.strip().toLowerCase(Locale.ROOT);
      if (!List.of(words).contains(word)) {
        throw SourceException.option(name + " '" + text + "': expected one of "
            + String.join(", ", words));
      }
      return word;
    };
  }

  private static Object size(String name, String text) {
    Matcher found = SIZE.matcher(text.strip());
    if (found.matches()) {
      int shift = 10 * " kmgt".indexOf(
          found.group(2).isEmpty() ? " " : found.group(2).toLowerCase(Locale.ROOT));
      long count = Long.parseLong(found.group(1));
      if (count > 0 && count <= Long.MAX_VALUE >> shift) {
        return count << shift;
      }
    }
    throw SourceException.option(name + " '" + text
        + "': expected bytes, as in 65536, 64k, 16m, 1g");
  }

  private static Object duration(String name, String text) {
    Matcher found = DURATION.matcher(text.strip());
    if (found.matches()) {
      BigDecimal millis = new BigDecimal(found.group(1)).multiply(
          BigDecimal.valueOf(MILLIS.get(found.group(2) == null ? "s" : found.group(2))));
      if (millis.signum() > 0 && millis.compareTo(BigDecimal.valueOf(1L << 53)) < 0) {
        return Math.max(1, millis.longValue());
      }
    }
    throw SourceException.option(name + " '" + text
        + "': expected a time, as in 500ms, 10s, 15m, 1h");
  }

  private static Object moment(String name, String text) {
    String word = text.strip();
    if (word.matches("[0-9]{1,18}")) {
      return Long.parseLong(word);
    }
    try {
      return OffsetDateTime.parse(word.replace(' ', 'T')).toInstant().toEpochMilli();
    } catch (DateTimeParseException error) {
      ZonedDateTime local = withoutZone(word.replace(' ', 'T'));
      throw SourceException.option(name + " '" + text + "': expected " + (local == null
          ? "milliseconds since 1970, or a time as in 2026-01-31T12:00:00Z"
          : "a zone, as in " + local.toLocalDateTime().withNano(0) + "Z"));
    }
  }

  private static ZonedDateTime withoutZone(String word) {
    try {
      return (word.indexOf('T') < 0 ? LocalDate.parse(word).atStartOfDay()
          : LocalDateTime.parse(word)).atZone(ZoneOffset.UTC);
    } catch (DateTimeParseException error) {
      return null;
    }
  }
}
