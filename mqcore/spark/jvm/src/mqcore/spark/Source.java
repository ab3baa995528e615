package mqcore.spark;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The data source `rocketmq-jvm`: topics, read in batches and in streams. */
public final class Source implements TableProvider, DataSourceRegister {
  static final String NAME = "rocketmq-jvm";
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
    return new Topics(Columns.checked(schema), own);
  }

  /** The table's options by name, a line for each, for tests. */
  public static java.util.List<String> options() {
    return Settings.table();
  }

  @SuppressWarnings("deprecation")              // of the interface's schema()
  private record Topics(StructType schema, Map<String, String> own) implements Table, SupportsRead {
    @Override
    public String name() {
      return NAME;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      Map<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
      all.putAll(own);
      all.putAll(options.asCaseSensitiveMap());     // of the query: they come first
      return new Scans(schema, all);
    }
  }
}
