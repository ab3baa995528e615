package mqcore.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** One task: ranges of queues, one after the other. */
record Task(ArrayList<QueueRange> ranges) implements InputPartition {
  @Override
  public String[] preferredLocations() {
    return TopicRead.hosts(ranges);
  }

  /** Makes the readers of tasks. */
  record Factory(TopicRead read) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("rows are read in batches");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new Reader(read, ((Task) partition).ranges);
    }
  }

  /** The batches of a task. */
  static final class Reader implements PartitionReader<ColumnarBatch> {
    private final TopicRead read;
    private final List<QueueRange> ranges;
    private final Rows rows;
    private final boolean showsGaps;
    private final long rowsMax;
    private final long bytesMax;
    private int nextRange;
    private QueueRange range;
    private Pieces reader;
    private ColumnarBatch batch;                    // over `rows`, of the range that is read
    private ColumnarBatch current;
    private Pieces.Missing gap;                // behind the rows of the batch
    private long taken;
    private long pulls;
    private long retries;
    private long bytes;

    Reader(TopicRead read, List<QueueRange> ranges) {
      this.read = read;
      this.ranges = ranges;
      rows = new Rows(Columns.needsItems(read.schema), read.tags);
      showsGaps = read.schema.getFieldIndex(Columns.GAP_END).isDefined();
      rowsMax = read.settings.number("rowsPerBatch");
      bytesMax = read.settings.number("bytesPerBatch");
    }

    @Override
    public boolean next() throws IOException {
      if (read.limit >= 0 && taken >= read.limit) {
        return false;
      }
      try {
        while (!advance()) {
          if (!open()) {
            return false;
          }
        }
      } catch (IOException error) {
        throw new SourceException("reading " + range.queue().shown() + ": " + error.getMessage(),
            error);
      }
      taken += current.numRows();
      return true;
    }

    /** Whether another range begins. */
    private boolean open() {
      finish();
      if (nextRange == ranges.size()) {
        return false;
      }
      range = ranges.get(nextRange++);
      Pieces.Asked asked = new Pieces.Asked(read.client, new Locator(read.client, range), range,
          read.subscription, read.expressionType, read.settings.has("group")
          ? read.client.wrap(read.settings.text("group")) : Cluster.READ_GROUP,
          read.settings.number("pullsInFlight").intValue(), read.settings.number("timeout"));
      reader = Subject.isPulled(range.queue().topic()) ? new RangeReader(asked)
          : new ViewReader(asked);
      batch = new ColumnarBatch(Vectors.of(read.schema, rows, range.queue()));
      return true;
    }

    /** Whether the range that is read has another batch. */
    private boolean advance() throws IOException {
      while (reader != null) {
        gather();
        if (rows.count > 0) {
          current = batch;
          current.setNumRows(rows.count);
          return true;
        }
        if (gap == null) {
          return false;
        }
        Pieces.Missing missing = gap;
        gap = null;
        read.lost(range.queue(), missing.begin(), missing.end(), missing.why());
        if (showsGaps) {
          current = new ColumnarBatch(
              Vectors.gap(read.schema, range.queue(), missing.begin(), missing.end()));
          current.setNumRows(1);
          return true;
        }
      }
      return false;
    }

    /** The rows up to the next gap, or as many as a batch has. */
    private void gather() throws IOException {
      rows.clear();
      while (gap == null && rows.count < rowsMax && rows.size < bytesMax) {
        Object piece = reader.next();
        if (piece == null) {
          return;
        }
        if (piece instanceof Pieces.Missing missing) {
          gap = missing;
        } else {
          rows.add((Records.Page) piece);
        }
      }
    }

    private void finish() {
      if (reader != null) {
        pulls += reader.pulls;
        retries += reader.retries;
        bytes += reader.bytes;
        reader.close();
        reader = null;
      }
    }

    @Override
    public ColumnarBatch get() {
      return current;
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      Pieces open = reader;
      return new CustomTaskMetric[] {
          Metrics.value(Metrics.PULLS, pulls + (open == null ? 0 : open.pulls)),
          Metrics.value(Metrics.RETRIES, retries + (open == null ? 0 : open.retries)),
          Metrics.value(Metrics.BYTES, bytes + (open == null ? 0 : open.bytes))};
    }

    @Override
    public void close() {
      if (rows.broken > 0) {
        TopicRead.LOG.warn("{} messages have bodies that cannot be decompressed: null",
            rows.broken);
      }
      finish();
    }
  }

  /** Where a range's broker is: what the driver said, then what name servers say. */
  private static final class Locator implements Pieces.Locate {
    private final Client client;
    private final QueueRange range;
    private String said;

    Locator(Client client, QueueRange range) {
      this.client = client;
      this.range = range;
      said = range.address();
    }

    @Override
    public String address() throws IOException {
      String found = said;
      said = "";
      if (!found.isEmpty()) {
        return found;
      }
      Cluster cluster = new Cluster(client);
      cluster.queues(range.queue().topic());
      return cluster.address(range.queue().broker());
    }
  }
}
