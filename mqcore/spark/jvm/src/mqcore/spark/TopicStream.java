package mqcore.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxBytes;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * Reads what comes, batch after batch.
 *
 * A stream's offset has every queue that was ever seen. A queue that is new gets its first offset
 * there in one batch, and is read from the next one on: so the offsets of a batch are written down
 * before it is read, and are the same when it is repeated.
 */
final class TopicStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private static final long BUNDLE_OFFSETS = 2_048;     // of several queues, that one task reads

  /** What Spark keeps: texts are compared. */
  static final class QueueOffsets extends Offset {
    final TreeMap<Queue, Long> offsets;
    private final String json;

    QueueOffsets(TreeMap<Queue, Long> offsets) {
      this.offsets = offsets;
      json = Positions.toJson(offsets);
    }

    @Override
    public String json() {
      return json;
    }
  }

  private final TopicRead read;
  private final Ends ends;
  private TreeMap<Queue, Long> first;
  private TreeMap<Queue, Long> target;                  // of a run that ends (AvailableNow)
  private long batchNanos = System.nanoTime();          // when the last batch had something

  TopicStream(TopicRead read) {
    this.read = read;
    ends = new Ends(read);
  }

  @Override
  public Offset initialOffset() {
    if (first == null) {
      String folder = read.settings.text("stateDir");
      first = FirstOffsets.read(folder);
      if (first == null) {
        first = FirstOffsets.keep(folder, begins());
      }
    }
    return new QueueOffsets(first);
  }

  private TreeMap<Queue, Long> begins() {
    try {
      Cluster cluster = new Cluster(read.client);
      List<Queue> queues = read.subject.existing(cluster);
      read.checkFilter(cluster, queues);
      return Positions.begins(read.settings, cluster, queues, "latest");
    } catch (IOException error) {
      throw failed(error);
    }
  }

  private SourceException failed(IOException error) {
    return new SourceException("reading " + read.subject + ": " + error.getMessage(), error);
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new QueueOffsets(Positions.fromJson(json));
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    Settings settings = read.settings;
    if (settings.has("maxOffsetsPerTrigger")) {
      return ReadLimit.maxRows(settings.number("maxOffsetsPerTrigger"));
    }
    if (settings.has("maxBytesPerTrigger")) {
      return ReadLimit.maxBytes(settings.number("maxBytesPerTrigger"));
    }
    return settings.has("minOffsetsPerTrigger")
        ? ReadLimit.minRows(settings.number("minOffsetsPerTrigger"),
            settings.number("maxTriggerDelay"))
        : ReadLimit.allAvailable();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    target = new TreeMap<>(ends.latest());
  }

  @Override
  public Offset reportLatestOffset() {
    return new QueueOffsets(new TreeMap<>(ends.latest()));
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("a batch has a limit");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    TreeMap<Queue, Long> begin = offsets(start);
    TreeMap<Queue, Long> end = new TreeMap<>(ends.latest());
    if (target != null) {
      TreeMap<Queue, Long> last = target;
      end.keySet().retainAll(last.keySet());
      end.replaceAll((queue, offset) -> Math.min(offset, last.get(queue)));
    }
    TreeMap<Queue, Long> until = new TreeMap<>(begin);
    TreeMap<Queue, Long> backlog = new TreeMap<>();
    List<Queue> fresh = new ArrayList<>();
    for (Map.Entry<Queue, Long> each : end.entrySet()) {
      Long known = begin.get(each.getKey());
      if (known == null) {
        fresh.add(each.getKey());
      } else if (each.getValue() < known) {
        until.put(each.getKey(), again(each.getKey(), known, each.getValue()));
      } else {
        backlog.put(each.getKey(), each.getValue() - known);
      }
    }
    limited(begin, backlog, limit).forEach((queue, count) -> until.merge(queue, count, Long::sum));
    until.putAll(ends.begins(fresh));
    if (!until.equals(begin)) {
      batchNanos = System.nanoTime();
    }
    return new QueueOffsets(until);
  }

  private static TreeMap<Queue, Long> offsets(Offset offset) {
    return offset instanceof QueueOffsets own ? own.offsets : Positions.fromJson(offset.json());
  }

  /** A queue that ends before the stream's offset: where to continue. */
  private long again(Queue queue, long begin, long end) {
    read.lost(queue, end, begin, queue.shown() + " ends at " + end + ", and was read up to "
        + begin + ": its topic was made anew, or its broker lost messages");
    try {
      Cluster cluster = new Cluster(read.client);
      cluster.queues(queue.topic());
      return cluster.begins(List.of(queue)).get(queue);
    } catch (IOException error) {
      throw failed(error);
    }
  }

  /** How many offsets of each queue the batch has. */
  private Map<Queue, Long> limited(TreeMap<Queue, Long> begin, TreeMap<Queue, Long> backlog,
      ReadLimit limit) {
    long total = backlog.values().stream().mapToLong(Long::longValue).sum();
    if (limit instanceof ReadAllAvailable || total == 0) {
      return backlog;
    }
    Long least = read.settings.number("minOffsetsPerTrigger");
    long waited = (System.nanoTime() - batchNanos) / 1_000_000;
    if (least != null && total < least && target == null
        && waited < read.settings.number("maxTriggerDelay")) {
      return Map.of();
    }
    if (limit instanceof ReadMaxRows rows) {
      return allotted(backlog, rows.maxRows());
    }
    if (limit instanceof ReadMaxBytes bytes) {
      return allotted(backlog, Math.max(1, (long) (bytes.maxBytes() / mean(begin, backlog))));
    }
    return backlog;
  }

  /** The mean size of the messages at the queues' begins, by backlog. */
  private double mean(TreeMap<Queue, Long> begin, TreeMap<Queue, Long> backlog) {
    TreeMap<Queue, Long> places = new TreeMap<>(begin);
    places.keySet().removeIf(queue -> backlog.getOrDefault(queue, 0L) == 0);
    try {
      Cluster cluster = new Cluster(read.client);
      for (Queue queue : places.keySet()) {
        cluster.queues(queue.topic());
      }
      double sum = 0;
      double count = 0;
      for (Map.Entry<Queue, Long> each : cluster.sizes(places).entrySet()) {
        sum += (double) each.getValue() * backlog.get(each.getKey());
        count += backlog.get(each.getKey());
      }
      return Math.max(1, sum / count);
    } catch (IOException error) {
      throw failed(error);
    }
  }

  /**
   * `total` shared out by backlog, to the last one: what rounding leaves goes to queues that have
   * nothing yet, then to those that lost most by it.
   */
  static Map<Queue, Long> allotted(Map<Queue, Long> backlog, long total) {
    long whole = backlog.values().stream().mapToLong(Long::longValue).sum();
    if (whole <= total) {
      return backlog;
    }
    Map<Queue, Long> shares = new TreeMap<>();
    Map<Queue, Long> lost = new HashMap<>();
    long left = total;
    for (Map.Entry<Queue, Long> each : backlog.entrySet()) {
      var product = java.math.BigInteger.valueOf(each.getValue())
          .multiply(java.math.BigInteger.valueOf(total))
          .divideAndRemainder(java.math.BigInteger.valueOf(whole));
      shares.put(each.getKey(), product[0].longValue());
      lost.put(each.getKey(), product[1].longValue());
      left -= product[0].longValue();
    }
    backlog.keySet().stream().filter(queue -> lost.get(queue) > 0)
        .sorted(Comparator.comparing((Queue queue) -> shares.get(queue) > 0)
            .thenComparing(queue -> -lost.get(queue)).thenComparing(Comparator.naturalOrder()))
        .limit(left).toList().forEach(queue -> shares.merge(queue, 1L, Long::sum));
    return shares;
  }

  /**
   * The tasks of a batch: the same for the same offsets. A task costs as much as thousands of
   * messages: ranges of several queues that have few together are one, unless `minPartitions` asks
   * for more.
   */
  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    TreeMap<Queue, Long> begins = offsets(start);
    Cluster cluster = new Cluster(read.client);
    List<QueueRange> ranges = read.split(cluster, begins, offsets(end));
    try {
      read.checkFilter(cluster, ranges.stream().map(QueueRange::queue).toList());
    } catch (IOException error) {
      throw failed(error);
    }
    Long records = read.settings.number("maxRecordsPerPartition");
    long sizeMax = read.settings.has("minPartitions") ? 0
        : Math.min(BUNDLE_OFFSETS, records == null ? BUNDLE_OFFSETS : records);
    List<InputPartition> found = new ArrayList<>();
    ArrayList<QueueRange> waiting = new ArrayList<>();
    long size = 0;
    for (QueueRange one : ranges) {
      if (!waiting.isEmpty() && size + one.size() > sizeMax) {
        found.add(new Task(waiting));
        waiting = new ArrayList<>();
        size = 0;
      }
      waiting.add(one);
      size += one.size();
    }
    if (!waiting.isEmpty()) {
      found.add(new Task(waiting));
    }
    return found.toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Task.Factory(read);
  }

  /** How far the stream is behind: of all queues, and of each topic. */
  @Override
  public Map<String, String> metrics(Optional<Offset> consumed) {
    if (consumed.isEmpty()) {
      return Map.of();
    }
    TreeMap<Queue, Long> done = offsets(consumed.get());
    TreeMap<String, Long> found = new TreeMap<>();
    long most = 0;
    long all = 0;
    for (Map.Entry<Queue, Long> each : ends.known().entrySet()) {
      long lag = Math.max(0, each.getValue() - done.getOrDefault(each.getKey(), 0L));
      most = Math.max(most, lag);
      all += lag;
      found.merge("messagesBehind." + each.getKey().topic(), lag, Long::sum);
    }
    found.put("messagesBehind", all);
    found.put("maxMessagesBehind", most);
    Map<String, String> texts = new TreeMap<>();
    found.forEach((name, value) -> texts.put(name, value.toString()));
    return texts;
  }

  /** What Spark's page and progress name the source. */
  @Override
  public String toString() {
    return Source.NAME + " " + read.subject;
  }

  @Override
  public void commit(Offset end) {
    // `mqcore.spark.track` tells brokers, and not one batch late
  }

  @Override
  public void stop() {
    // connections are closed when they lie idle
  }
}
