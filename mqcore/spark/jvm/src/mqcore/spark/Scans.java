package mqcore.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** Takes what a query needs: columns, filters, a limit. */
final class Scans
    implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownV2Filters,
    SupportsPushDownLimit {
  private final Map<String, String> own;
  private final Map<String, String> options;
  private final Wanted wanted;
  private StructType schema;
  private List<Predicate> pushed = List.of();
  private int limit = -1;

  /** `own` are the options of a catalog's table, `options` those of the query. */
  Scans(StructType schema, Map<String, String> own, Map<String, String> options) {
    this.schema = schema;
    this.own = own;
    this.options = options;
    wanted = new Wanted(schema.getFieldIndex(Columns.GAP_END).isDefined());
  }

  @Override
  public void pruneColumns(StructType required) {
    schema = required;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    pushed = wanted.take(predicates);
    List<Predicate> rest = new ArrayList<>(List.of(predicates));
    rest.removeAll(pushed);
    return rest.toArray(Predicate[]::new);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.toArray(Predicate[]::new);
  }

  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true;                            // each task has as many: Spark takes the first
  }

  @Override
  public Scan build() {
    return new Topics(schema, own, options, wanted, limit, pushed);
  }

  /** A read of topics; whether it is a batch or a stream is known when Spark asks for one. */
  private record Topics(StructType readSchema, Map<String, String> own,
      Map<String, String> options, Wanted wanted, int limit, List<Predicate> pushed) implements Scan {
    @Override
    public String description() {
      String[] names = Settings.both(own, options, Settings.Place.BATCH).entrySet().stream()
          .filter(one -> one.getKey().matches("(?i)topics?|subscribe|(subscribe|topics)pattern"
              + "|assign"))
          .map(Map.Entry::getValue).toArray(String[]::new);
      return Source.NAME + " " + String.join(", ", names) + (pushed.isEmpty() ? ""
          : " PushedFilters: " + pushed);
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      return ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return Metrics.all();
    }

    private Settings settings(Settings.Place place) {
      return new Settings(Settings.both(own, options, place), place);
    }

    @Override
    public Batch toBatch() {
      Settings settings = settings(Settings.Place.BATCH);
      return new Once(new TopicRead(settings, readSchema, wanted.tags, limit), wanted);
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      Settings settings = settings(Settings.Place.STREAM);
      return new TopicStream(new TopicRead(settings, readSchema, wanted.tags, -1));
    }
  }

  /** Reads what topics hold, once. */
  private record Once(TopicRead read, Wanted wanted) implements Batch {
    @Override
    public InputPartition[] planInputPartitions() {
      try {
        Cluster cluster = new Cluster(read.client);
        List<Queue> all = read.subject.existing(cluster);
        read.checkFilter(cluster, all);
        List<Queue> queues = all.stream().filter(wanted::has).toList();
        TreeMap<Queue, Long> begins =
            Positions.begins(read.settings, cluster, queues, "earliest");
        TreeMap<Queue, Long> ends = Positions.ends(read.settings, cluster, queues);
        check(begins, ends, cluster.begins(queues), cluster.ends(queues));
        wanted.cut(cluster, begins, ends);
        return read.split(cluster, begins, ends).stream()
            .map(one -> new Task(new ArrayList<>(List.of(one)))).toArray(InputPartition[]::new);
      } catch (IOException error) {
        throw new SourceException("reading " + read.subject + ": " + error.getMessage(), error);
      }
    }

    private void check(Map<Queue, Long> begins, Map<Queue, Long> ends, Map<Queue, Long> first,
        Map<Queue, Long> last) {
      for (Queue queue : List.copyOf(begins.keySet())) {
        long begin = begins.get(queue);
        if (begin > last.get(queue)) {
          read.lost(queue, last.get(queue), begin, "the queue ends at " + last.get(queue));
          begins.put(queue, last.get(queue));
          continue;
        }
        long stop = Math.min(first.get(queue), ends.get(queue));
        if (begin < stop && read.fails()) {
          read.lost(queue, begin, stop, "retention has deleted them");
        }
      }
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Task.Factory(read);
    }
  }
}
