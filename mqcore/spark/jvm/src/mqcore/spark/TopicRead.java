package mqcore.spark;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The part of a read that driver and executors share: its options, its columns, its tasks. */
final class TopicRead implements Serializable {
  static final Logger LOG = LoggerFactory.getLogger("mqcore.spark");

  final Settings settings;
  final Client client;
  final Subject subject;
  final StructType schema;
  /** The broker's filter, `*` without; and how it is written, `TAG` or `SQL92`. */
  final String subscription;
  final String expressionType;
  /** The tags of rows that are wanted; null: all. */
  final HashSet<String> tags;
  /** Rows of one task that are enough; -1: all. */
  final int limit;
  /** The brokers that a driver has asked whether they can filter so. */
  private transient HashSet<String> checked;

  TopicRead(Settings settings, StructType schema, Set<String> pushedTags, int limit) {
    this.settings = settings;
    this.schema = schema;
    this.limit = limit;
    client = new Client(settings);
    subject = new Subject(settings);
    subscription = settings.text("subExpression");
    boolean isSql = settings.text("subExpressionType").equals("sql92");
    expressionType = isSql ? "SQL92" : "TAG";
    if (!subscription.equals("*") && !subject.topics.stream().allMatch(Subject::isPulled)) {
      throw SourceException.option("subExpression: brokers do not filter topic "
          + Subject.OP_TOPIC + ": leave subExpression out");
    }
    HashSet<String> found = isSql || subscription.equals("*") ? null : tags(subscription);
    if (pushedTags != null && found == null) {
      found = new HashSet<>(pushedTags);
    } else if (pushedTags != null) {
      found.retainAll(pushedTags);
    }
    tags = found;
  }

  private static HashSet<String> tags(String expression) {
    HashSet<String> found = new HashSet<>();
    for (String part : expression.split("\\|\\|")) {
      if (!part.isBlank()) {
        found.add(part.strip());
      }
    }
    if (found.isEmpty()) {
      throw SourceException.option("subExpression '" + expression
          + "': expected at least one tag");
    }
    return found;
  }

  /**
   * Asks each broker once whether it can filter as told: one that cannot lets all messages pass,
   * and says nothing.
   */
  void checkFilter(Cluster cluster, Collection<Queue> queues) throws IOException {
    if (!expressionType.equals("SQL92")) {
      return;
    }
    checked = checked == null ? new HashSet<>() : checked;
    for (Queue queue : queues) {
      if (!checked.contains(queue.broker())) {
        Answer answer = cluster.check(queue, subscription, expressionType);
        if (answer.code != Answer.SUCCESS) {
          throw SourceException.option("subExpression '" + subscription + "': "
              + answer.shown("broker " + queue.broker()));
        }
        checked.add(queue.broker());
      }
    }
  }

  /** Whether missing offsets are an error. */
  boolean fails() {
    return settings.truth("failOnDataLoss");
  }

  /** Says that offsets are not there: an error, or a line in the log. */
  void lost(Queue queue, long begin, long end, String why) {
    String text = "offsets " + begin + " to " + (end - 1) + " of " + queue.shown()
        + " cannot be read: " + why;
    if (fails()) {
      throw new SourceException(
          text + "; begin further on, or go over them with failOnDataLoss=false");
    }
    LOG.warn("{}; failOnDataLoss=false goes over them", text);
  }

  /** Ranges of about equal size: at least `minPartitions`, none above the largest size. */
  List<QueueRange> split(Cluster cluster, Map<Queue, Long> begins, Map<Queue, Long> ends) {
    List<Queue> wanted = new ArrayList<>();
    long total = 0;
    for (Map.Entry<Queue, Long> each : ends.entrySet()) {
      Long begin = begins.get(each.getKey());
      if (begin != null && begin < each.getValue()) {
        wanted.add(each.getKey());
        total += each.getValue() - begin;
      }
    }
    Long tasks = settings.number("minPartitions");
    Long records = settings.number("maxRecordsPerPartition");
    long sizeMax = Math.min(records == null ? Long.MAX_VALUE : records,
        Math.max(1, tasks == null ? total : total / tasks));
    List<QueueRange> found = new ArrayList<>();
    for (Queue queue : wanted) {
      long begin = begins.get(queue);
      long size = ends.get(queue) - begin;
      long count = (size - 1) / sizeMax + 1;
      String address = address(cluster, queue);
      for (long part = 0; part < count; part++) {
        found.add(new QueueRange(queue, begin + bound(size, part, count),
            begin + bound(size, part + 1, count), address));
      }
    }
    return found;
  }

  private static long bound(long size, long part, long count) {
    return size / count * part + size % count * part / count;
  }

  private static String address(Cluster cluster, Queue queue) {
    try {
      cluster.queues(queue.topic());
      return cluster.address(queue.broker());
    } catch (IOException error) {
      LOG.info("no address of {} yet, its tasks will ask: {}", queue.broker(),
          error.getMessage());
      return "";
    }
  }

  /** The host names of the brokers of a task's ranges: where it is read with the least traffic. */
  static String[] hosts(Collection<QueueRange> ranges) {
    return ranges.stream().filter(one -> !one.address().isEmpty())
        .map(one -> Names.address("address", one.address())[0]).distinct()
        .toArray(String[]::new);
  }
}
