package mqcore.spark;

import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A cluster as a catalog of Spark's, its topics as tables: `spark.sql.catalog.mq` is this class,
 * `spark.sql.catalog.mq.nameServer` and others are the options of all its tables.
 */
public final class TopicCatalog implements TableCatalog {
  private static final int MICROS = 1_000;              // in a millisecond
  private String name;
  private TreeMap<String, String> own;
  private Client client;

  @Override
  public void initialize(String catalog, CaseInsensitiveStringMap options) {
    name = catalog;
    own = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    own.putAll(options.asCaseSensitiveMap());
    client = new Client(new Settings(
        Settings.both(own, Map.of(), Settings.Place.BATCH), Settings.Place.BATCH));
  }

  @Override
  public String name() {
    return name;
  }

  /** The topics of applications; those of brokers and of retries are read by their names. */
  @Override
  public Identifier[] listTables(String[] namespace) {
    if (namespace.length > 0) {
      return new Identifier[0];
    }
    try {
      return new Cluster(client).topics().stream().filter(Names::isApplications)
          .map(topic -> Identifier.of(namespace, topic)).toArray(Identifier[]::new);
    } catch (IOException error) {
      throw failed(error);
    }
  }

  private SourceException failed(IOException error) {
    return new SourceException("catalog " + name + ": " + error.getMessage(), error);
  }

  @Override
  public Table loadTable(Identifier place) throws NoSuchTableException {
    return table(place, Map.of());
  }

  /** The messages that were stored up to then, in microseconds since 1970. */
  @Override
  public Table loadTable(Identifier place, long timestamp) throws NoSuchTableException {
    return table(place, Map.of("endingTimestamp",
        Long.toString(Math.floorDiv(timestamp, MICROS) + 1)));
  }

  /** The messages below the offsets of the JSON. */
  @Override
  public Table loadTable(Identifier place, String version) throws NoSuchTableException {
    return table(place, Map.of("endingOffsets", version));
  }

  private Table table(Identifier place, Map<String, String> more) throws NoSuchTableException {
    try {
      if (place.namespace().length > 0 || !Names.isTopic(place.name())
          || new Cluster(client).queues(place.name()) == null) {
        throw new NoSuchTableException(place);
      }
    } catch (IOException error) {
      throw failed(error);
    }
    TreeMap<String, String> all = new TreeMap<>(own);
    all.put("topic", place.name());
    all.putAll(more);
    return new Source.Topics(name + "." + place.name(),
        Columns.schema(all.get("columns"), all.get("propertiesAs")), all);
  }

  private UnsupportedOperationException unsupported() {
    return new UnsupportedOperationException("catalog " + name
        + " makes, changes and drops no topics: `mqcore topic` does");
  }

  @Override
  public Table createTable(Identifier place, TableInfo info) {
    throw unsupported();
  }

  @Override
  public Table alterTable(Identifier place, TableChange... changes) {
    throw unsupported();
  }

  @Override
  public boolean dropTable(Identifier place) {
    throw unsupported();
  }

  @Override
  public void renameTable(Identifier place, Identifier other) {
    throw unsupported();
  }
}
