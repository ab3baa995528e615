package mqcore.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Where reads begin and end: the options of users, and the offsets of checkpoints. The JSON is that
 * of the source in Python: each continues the checkpoints of the other.
 */
final class Positions {
  private static final int VERSION = 1;
  private static final long EARLIEST = -2;
  private static final long LATEST = -1;

  private Positions() {
  }

  // -- JSON ---------------------------------------------------------------------------------------

  /** The text of a stream's offset: sorted keys, the same text for the same offsets. */
  static String toJson(Map<Queue, Long> offsets) {
    TreeMap<String, TreeMap<String, TreeMap<String, Long>>> nested = new TreeMap<>();
    offsets.forEach((queue, offset) -> nested
        .computeIfAbsent(queue.topic(), topic -> new TreeMap<>())
        .computeIfAbsent(queue.broker(), broker -> new TreeMap<>())
        .put(Integer.toString(queue.id()), offset));
    ObjectNode all = Cluster.MAPPER.createObjectNode();
    all.set("offsets", Cluster.MAPPER.valueToTree(nested));
    return all.put("v", VERSION).toString();
  }

  /** The offsets of a checkpoint. */
  static TreeMap<Queue, Long> fromJson(String text) {
    JsonNode said = read(text);
    if (said == null || said.path("v").asInt() != VERSION) {
      throw new SourceException("the checkpoint's offsets are of version "
          + (said == null ? "?" : said.path("v")) + ": this source reads version " + VERSION
          + "; use the version that wrote it");
    }
    return flat(said.path("offsets"), "checkpoint");
  }

  private static TreeMap<Queue, Long> parse(String name, String text) {
    JsonNode said = read(text);
    if (said == null) {
      throw SourceException.option(name + ": expected a word or JSON, not '" + text + "'");
    }
    return flat(said.path("v").isInt() ? said.path("offsets") : said, name);
  }

  private static JsonNode read(String text) {
    try {
      JsonNode found = Cluster.MAPPER.readTree(text);
      return found.isMissingNode() ? null : found;
    } catch (JsonProcessingException error) {
      return null;
    }
  }

  private static TreeMap<Queue, Long> flat(JsonNode said, String name) {
    String shape = name + ": expected {\"topic\":{\"broker-a\":{\"0\":123}}}";
    TreeMap<Queue, Long> found = new TreeMap<>();
    for (Map.Entry<String, JsonNode> topic : members(said, shape)) {
      for (Map.Entry<String, JsonNode> broker : members(topic.getValue(), shape)) {
        for (Map.Entry<String, JsonNode> one : members(broker.getValue(), shape)) {
          JsonNode offset = one.getValue();
          if (!one.getKey().matches("[0-9]{1,9}") || !offset.isIntegralNumber()
              || !offset.canConvertToLong() || offset.asLong() < EARLIEST) {
            throw SourceException.option(shape + ", not '" + one.getKey() + "': " + offset);
          }
          found.put(new Queue(topic.getKey(), broker.getKey(), Integer.parseInt(one.getKey())),
              offset.asLong());
        }
      }
    }
    return found;
  }

  private static Set<Map.Entry<String, JsonNode>> members(JsonNode said, String shape) {
    if (!said.isObject()) {
      throw SourceException.option(shape);
    }
    return said.properties();
  }

  /** The queues of `{"topic":{"broker-a":[0,1]}}`. */
  static List<Queue> assigned(String text) {
    String shape = "assign: expected {\"topic\":{\"broker-a\":[0,1]}}";
    JsonNode said = read(text);
    TreeSet<Queue> found = new TreeSet<>();
    for (Map.Entry<String, JsonNode> topic
        : members(said == null ? Cluster.MAPPER.nullNode() : said, shape)) {
      for (Map.Entry<String, JsonNode> broker : members(topic.getValue(), shape)) {
        for (JsonNode id : broker.getValue()) {
          if (!broker.getValue().isArray() || !id.isInt() || id.asInt() < 0) {
            throw SourceException.option(shape);
          }
          found.add(new Queue(topic.getKey(), broker.getKey(), id.asInt()));
        }
      }
    }
    if (found.isEmpty()) {
      throw SourceException.option(shape + ", with at least one queue");
    }
    return new ArrayList<>(found);
  }

  // -- from options to offsets --------------------------------------------------------------------

  /** Where a read begins; `word` is earliest or latest: of what the options do not say. */
  static TreeMap<Queue, Long> begins(Settings settings, Cluster cluster, List<Queue> queues,
      String word) throws IOException {
    if (settings.has("startingTimestamp")) {
      TreeMap<Queue, Long> times = new TreeMap<>();
      queues.forEach(queue -> times.put(queue, settings.number("startingTimestamp")));
      return atTimes(settings, cluster, times, "startingTimestamp");
    }
    if (settings.has("startingOffsetsByTimestamp")) {
      String name = "startingOffsetsByTimestamp";
      TreeMap<Queue, Long> said = named(name, parse(name, settings.text(name)), queues);
      TreeMap<Queue, Long> found = byWord(cluster, without(queues, said.keySet()), word);
      found.putAll(atTimes(settings, cluster, said, name));
      return found;
    }
    String text = settings.has("startingOffsets") ? settings.text("startingOffsets") : word;
    switch (text.toLowerCase(Locale.ROOT)) {
      case "earliest", "latest":
        return byWord(cluster, queues, text.toLowerCase(Locale.ROOT));
      case "group":
        return ofGroup(settings, cluster, queues, word);
      default:
        return byJson("startingOffsets", text, cluster, queues, word);
    }
  }

  /**
   * A queue in which the group has committed nothing begins at its first message if the group has
   * committed offsets of the topic's other queues: the queue was added since.
   */
  private static TreeMap<Queue, Long> ofGroup(Settings settings, Cluster cluster,
      List<Queue> queues, String word) throws IOException {
    if (!settings.has("group")) {
      throw SourceException.option("startingOffsets group: expected the option group, too");
    }
    TreeMap<Queue, Long> found = cluster.committed(settings.text("group"), queues);
    Set<String> known = new HashSet<>();
    found.keySet().forEach(queue -> known.add(queue.topic()));
    List<Queue> added = new ArrayList<>();
    List<Queue> others = new ArrayList<>();
    for (Queue queue : without(queues, found.keySet())) {
      (known.contains(queue.topic()) ? added : others).add(queue);
    }
    found.putAll(byWord(cluster, added, "earliest"));
    found.putAll(byWord(cluster, others, word));
    return found;
  }

  /** Where a batch ends: the first offset of each queue that is not read. */
  static TreeMap<Queue, Long> ends(Settings settings, Cluster cluster, List<Queue> queues)
      throws IOException {
    if (settings.has("endingTimestamp")) {
      TreeMap<Queue, Long> times = new TreeMap<>();
      queues.forEach(queue -> times.put(queue, settings.number("endingTimestamp")));
      return cluster.atTimes(times);
    }
    if (settings.has("endingOffsetsByTimestamp")) {
      String name = "endingOffsetsByTimestamp";
      TreeMap<Queue, Long> said = named(name, parse(name, settings.text(name)), queues);
      TreeMap<Queue, Long> found = byWord(cluster, without(queues, said.keySet()), "latest");
      found.putAll(cluster.atTimes(said));
      return found;
    }
    String text = settings.text("endingOffsets");
    TreeMap<Queue, Long> last = cluster.ends(queues);
    if (text.equalsIgnoreCase("latest")) {
      return last;
    }
    TreeMap<Queue, Long> found = byJson("endingOffsets", text, cluster, queues, "latest");
    last.forEach((queue, end) -> {
      if (found.get(queue) > end) {
        throw SourceException.option("endingOffsets: " + queue.shown() + " ends at " + end
            + ", before " + found.get(queue));
      }
    });
    return found;
  }

  private static TreeMap<Queue, Long> byWord(Cluster cluster, Collection<Queue> queues,
      String word) throws IOException {
    return queues.isEmpty() ? new TreeMap<>()
        : word.equals("earliest") ? cluster.begins(queues) : cluster.ends(queues);
  }

  private static TreeMap<Queue, Long> byJson(String name, String text, Cluster cluster,
      List<Queue> queues, String word) throws IOException {
    TreeMap<Queue, Long> said = named(name, parse(name, text), queues);
    TreeMap<Queue, Long> found = byWord(cluster, without(queues, said.keySet()), word);
    found.putAll(byWord(cluster, marked(said, EARLIEST), "earliest"));
    found.putAll(byWord(cluster, marked(said, LATEST), "latest"));
    said.forEach((queue, offset) -> {
      if (offset >= 0) {
        found.put(queue, offset);
      }
    });
    return found;
  }

  private static List<Queue> marked(Map<Queue, Long> said, long mark) {
    return said.keySet().stream().filter(queue -> said.get(queue) == mark).toList();
  }

  private static List<Queue> without(List<Queue> queues, Set<Queue> others) {
    return queues.stream().filter(queue -> !others.contains(queue)).toList();
  }

  private static TreeMap<Queue, Long> named(String name, TreeMap<Queue, Long> said,
      List<Queue> queues) {
    Set<Queue> known = new HashSet<>(queues);
    for (Queue queue : said.keySet()) {
      if (!known.contains(queue)) {
        throw SourceException.option(name + ": " + queue.shown()
            + " is none that is read: there are " + shown(queues, queue.topic()));
      }
    }
    return said;
  }

  /** The queues of a topic, for errors. */
  static String shown(Collection<Queue> queues, String topic) {
    TreeMap<String, TreeSet<Integer>> ids = new TreeMap<>();
    for (Queue queue : queues) {
      if (queue.topic().equals(topic)) {
        ids.computeIfAbsent(queue.broker(), name -> new TreeSet<>()).add(queue.id());
      }
    }
    List<String> parts = new ArrayList<>();
    ids.forEach((name, some) -> parts.add(name + ": " + Collections.min(some) + " to "
        + Collections.max(some)));
    return parts.isEmpty() ? "no queue to read" : String.join("; ", parts);
  }

  private static TreeMap<Queue, Long> atTimes(Settings settings, Cluster cluster,
      TreeMap<Queue, Long> times, String name) throws IOException {
    TreeMap<Queue, Long> found = cluster.atTimes(times);
    if (settings.text("startingOffsetsByTimestampStrategy").equals("error")) {
      TreeMap<Queue, Long> late = cluster.ends(times.keySet());
      found.forEach((queue, offset) -> {
        if (offset >= late.get(queue)) {
          throw SourceException.option(name + ": " + queue.shown()
              + " has nothing that was stored at " + times.get(queue) + " or later; with"
              + " startingOffsetsByTimestampStrategy=latest it begins at its end");
        }
      });
    }
    return found;
  }
}
