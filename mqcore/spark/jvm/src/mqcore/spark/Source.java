package mqcore.spark;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source `rocketmq`: topics, read in batches and in streams here, and written by the sink
 * in Python, which Spark finds under the same name (`mqcore.spark.topics`).
 */
public final class Source implements TableProvider, DataSourceRegister {
  static final String NAME = "rocketmq";
  /** Before the names of the options that `CREATE TABLE ... OPTIONS` gave. */
  private static final String OF_CATALOG = "option.";

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return Columns.schema(options.get("columns"), options.get("propertiesAs"));
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(StructType schema, Transform[] transforms, Map<String, String> options) {
    Map<String, String> own = new HashMap<>();
    options.forEach((name, value) -> {
      if (name.startsWith(OF_CATALOG)) {
        own.put(name.substring(OF_CATALOG.length()), value);
      }
    });
    return new Topics(NAME, Columns.named(schema), own);
  }

  /** The table's options by name, a line for each, for tests. */
  public static java.util.List<String> options() {
    return Settings.table();
  }

  /** Topics as a table of Spark's; `own` are the options of a catalog's table. */
  @SuppressWarnings("deprecation")              // of the interface's schema()
  record Topics(String name, StructType schema, Map<String, String> own)
      implements Table, SupportsRead, SupportsWrite {
    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ,
          TableCapability.BATCH_WRITE, TableCapability.STREAMING_WRITE,
          TableCapability.TRUNCATE,                 // the sink says why it cannot
          TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new Scans(Columns.checked(schema), own, options.asCaseSensitiveMap());
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      TreeMap<String, String> all =
          Settings.both(own, info.options().asCaseSensitiveMap(), Settings.Place.WRITE);
      PythonDataSourceV2 python = new PythonDataSourceV2();
      python.setShortName(NAME);
      Table sink = python.getTable(info.schema(), new Transform[0], all);
      return ((SupportsWrite) sink).newWriteBuilder(new Write(
          info.queryId(), info.schema(), new CaseInsensitiveStringMap(all)));
    }
  }

  private record Write(String queryId, StructType schema, CaseInsensitiveStringMap options)
      implements LogicalWriteInfo {
  }
}
