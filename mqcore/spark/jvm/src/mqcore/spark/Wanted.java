package mqcore.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** The queues, offsets and tags that a query's filters leave; all filters hold at once. */
final class Wanted {
  private static final long SLACK_MILLIS = 60_000;  // store times may go back; Spark looks again
  private static final Set<String> NEVER_NULL =
      Set.of("topic", "brokername", "queueid", "queueoffset");
  private static final long END = Long.MAX_VALUE;

  /** Whether rows of gaps are asked for: all but their place is null. */
  private final boolean hasGaps;
  private Set<Object> queueIds;
  private Set<Object> brokers;
  private Set<Object> topics;
  Set<String> tags;
  private long begin;
  private long end = END;
  private long beginMillis = Long.MIN_VALUE;
  private long endMillis = END;

  Wanted(boolean hasGaps) {
    this.hasGaps = hasGaps;
  }

  /** Notes filters; those that are kept wholly, so that Spark need not look again. */
  List<Predicate> take(Predicate[] filters) {
    List<Predicate> kept = new ArrayList<>();
    for (Predicate one : filters) {
      if (take(one)) {
        kept.add(one);
      }
    }
    for (Predicate one : filters) {
      if (tags != null && one.name().equals("IS_NOT_NULL") && "tags".equals(column(one))) {
        kept.add(one);
      }
    }
    return kept;
  }

  private static String column(Predicate filter) {
    Expression[] children = filter.children();
    return children.length > 0 && children[0] instanceof NamedReference reference
        && reference.fieldNames().length == 1
        ? reference.fieldNames()[0].toLowerCase(Locale.ROOT) : null;
  }

  private boolean take(Predicate filter) {
    String name = column(filter);
    if (name == null) {
      return false;
    }
    if (filter.name().equals("IS_NOT_NULL")) {
      return NEVER_NULL.contains(name) || !hasGaps && name.equals("storetimestamp");
    }
    Expression[] children = filter.children();
    Set<Object> values = new HashSet<>();
    boolean isTime = false;
    for (int index = 1; index < children.length; index++) {
      if (!(children[index] instanceof Literal<?> literal)) {
        return false;
      }
      isTime = literal.dataType() instanceof TimestampType;
      if (literal.value() instanceof UTF8String text) {
        values.add(text.toString());
      } else if (literal.value() instanceof Integer || literal.value() instanceof Long) {
        values.add(((Number) literal.value()).longValue());
      } else if (literal.value() != null) {
        return false;
      }
    }
    boolean isChosen = Set.of("=", "<=>", "IN").contains(filter.name());
    if (values.isEmpty() && !filter.name().equals("IN")) {
      return false;
    }
    switch (name) {
      case "queueid" -> queueIds = isChosen ? both(queueIds, values) : queueIds;
      case "brokername" -> brokers = isChosen ? both(brokers, values) : brokers;
      case "topic" -> topics = isChosen ? both(topics, values) : topics;
      case "tags" -> {
        if (!isChosen || hasGaps) {
          return false;
        }
        Set<String> texts = new HashSet<>();
        values.forEach(value -> texts.add((String) value));
        if (tags != null) {
          texts.retainAll(tags);
        }
        tags = texts;
      }
      case "queueoffset" -> {
        return children.length == 2 && bound(filter.name(), values, 1);
      }
      case "storetimestamp" -> {
        if (isTime && children.length == 2) {
          bound(filter.name(), values, 1_000);
        }
        return false;
      }
      default -> {
        return false;
      }
    }
    return isChosen;
  }

  private static Set<Object> both(Set<Object> before, Set<Object> values) {
    if (before != null) {
      values.retainAll(before);
    }
    return values;
  }

  /** Notes a bound of offsets, or of store times in microseconds: `unit` is 1,000 then. */
  private boolean bound(String operator, Set<Object> values, int unit) {
    if (!(values.iterator().next() instanceof Long given)) {
      return false;
    }
    long value = Math.floorDiv(given, unit);
    long after = value == END ? END : value + 1;
    long low = switch (operator) {
      case "=", "<=>", ">=" -> value;
      case ">" -> after;
      default -> Long.MIN_VALUE;
    };
    long high = switch (operator) {
      case "=", "<=>", "<=" -> after;
      case "<" -> unit == 1 ? value : after;
      default -> END;
    };
    if (low == Long.MIN_VALUE && high == END) {
      return false;
    }
    if (unit == 1) {
      begin = Math.max(begin, low);
      end = Math.min(end, high);
    } else {
      beginMillis = Math.max(beginMillis, low == Long.MIN_VALUE ? low : low - SLACK_MILLIS);
      endMillis = Math.min(endMillis, high >= END - SLACK_MILLIS ? END : high + SLACK_MILLIS);
    }
    return true;
  }

  /** Whether anything of a queue is wanted. */
  boolean has(Queue queue) {
    return (queueIds == null || queueIds.contains((long) queue.id()))
        && (brokers == null || brokers.contains(queue.broker()))
        && (topics == null || topics.contains(queue.topic()));
  }

  /** Narrows ranges down to what is wanted. */
  void cut(Cluster cluster, Map<Queue, Long> begins, Map<Queue, Long> ends) throws IOException {
    begins.replaceAll((queue, offset) -> Math.max(offset, begin));
    ends.replaceAll((queue, offset) -> Math.min(offset, end));
    if (beginMillis > 0) {
      Map<Queue, Long> found = atTimes(cluster, begins, beginMillis);
      begins.replaceAll((queue, offset) -> Math.max(offset, found.get(queue)));
    }
    if (endMillis != END) {
      Map<Queue, Long> found = atTimes(cluster, ends, Math.max(endMillis, 0));
      ends.replaceAll((queue, offset) -> Math.min(offset, found.get(queue)));
    }
  }

  private static Map<Queue, Long> atTimes(Cluster cluster, Map<Queue, Long> queues, long millis)
      throws IOException {
    TreeMap<Queue, Long> times = new TreeMap<>();
    queues.keySet().forEach(queue -> times.put(queue, millis));
    return cluster.atTimes(times);
  }
}
