package mqcore.spark;

import java.util.Arrays;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What Spark's page shows beside a scan. */
public final class Metrics {
  static final String PULLS = "pulls";
  static final String RETRIES = "pullRetries";
  static final String BYTES = "pulledBytes";

  private Metrics() {
  }

  static CustomMetric[] all() {
    return new CustomMetric[] {new Pulls(), new Retries(), new Bytes()};
  }

  static CustomTaskMetric value(String name, long value) {
    return new CustomTaskMetric() {
      @Override
      public String name() {
        return name;
      }

      @Override
      public long value() {
        return value;
      }
    };
  }

  /** Spark makes one by its class where it shows it. */
  public static final class Pulls extends CustomSumMetric {
    @Override
    public String name() {
      return PULLS;
    }

    @Override
    public String description() {
      return "requests to brokers";
    }
  }

  /** Requests that were asked again. */
  public static final class Retries extends CustomSumMetric {
    @Override
    public String name() {
      return RETRIES;
    }

    @Override
    public String description() {
      return "times that requests were asked again";
    }
  }

  /** Bytes of answers. */
  public static final class Bytes extends CustomSumMetric {
    @Override
    public String name() {
      return BYTES;
    }

    @Override
    public String description() {
      return "bytes from brokers";
    }

    @Override
    public String aggregateTaskMetrics(long[] values) {
      return Arrays.stream(values).sum() + " B";
    }
  }
}
