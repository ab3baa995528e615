package mqcore.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;

/** Names that users write: the nearest known name, addresses, accounts, namespaces. */
final class Names {
  static final String RETRY = "%RETRY%";
  static final String DEAD = "%DLQ%";
  private static final Pattern TOPIC = Pattern.compile("[a-zA-Z0-9%|_-]{1,127}");
  private static final Pattern SPACE = Pattern.compile("[\\p{L}\\p{N}_-]*");
  private static final Pattern ADDRESS = Pattern.compile("(.+):([0-9]{1,5})");
  private static final Set<String> SYSTEM = Set.of(
      "BenchmarkTest", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC",
      "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC", "TBW102",
      "TRANS_CHECK_MAX_TIME_TOPIC");

  private Names() {
  }

  /** What to say beside an unknown name: the nearest known one, or all. */
  static String hint(String name, List<String> known) {
    String nearest = null;
    int least = Integer.MAX_VALUE;
    for (String one : known) {
      int changes = changes(name.toLowerCase(Locale.ROOT), one.toLowerCase(Locale.ROOT));
      if (changes < least) {
        least = changes;
        nearest = one;
      }
    }
    return nearest != null && 2 * least <= Math.max(name.length(), nearest.length())
        ? "did you mean " + nearest + "?"
        : "expected some of " + String.join(", ", new TreeSet<>(known));
  }

  /** Letters to insert, remove or replace between two words. */
  private static int changes(String one, String other) {
    int[] row = new int[other.length() + 1];
    Arrays.setAll(row, index -> index);
    for (int i = 1; i <= one.length(); i++) {
      int corner = row[0];
      row[0] = i;
      for (int j = 1; j <= other.length(); j++) {
        int above = row[j];
        int same = one.charAt(i - 1) == other.charAt(j - 1) ? 0 : 1;
        row[j] = Math.min(corner + same, Math.min(above, row[j - 1]) + 1);
        corner = above;
      }
    }
    return row[other.length()];
  }

  static boolean isTopic(String name) {
    return TOPIC.matcher(name).matches();
  }

  /** Whether a topic is neither a broker's own nor of retries. */
  static boolean isApplications(String topic) {
    return !SYSTEM.contains(topic) && !topic.startsWith("rmq_sys_") && prefix(topic).isEmpty();
  }

  static void checkTopic(String option, String topic) {
    if (!isTopic(topic)) {
      throw SourceException.option(option + " '" + topic
          + "': expected 1 to 127 of a-z A-Z 0-9 % | - _");
    }
  }

  static void checkNamespace(String space) {
    if (!SPACE.matcher(space).matches()) {
      throw SourceException.option("rocketmq.namespace: expected letters, digits, _ and -");
    }
  }

  /** `host:port` of each name server; of one `http://x/host:port` what follows the last slash. */
  static List<String> servers(String text) {
    if (text.startsWith("http://") || text.startsWith("https://")) {
      text = text.substring(text.lastIndexOf('/') + 1);
    }
    List<String> found = new ArrayList<>();
    for (String part : text.split("[;,]")) {
      if (!part.isBlank()) {
        address("nameServer", part.strip());
        found.add(part.strip());
      }
    }
    if (found.isEmpty()) {
      throw SourceException.option("nameServer: expected host:port of a name server, as an option"
          + " or in the environment's NAMESRV_ADDR");
    }
    return found;
  }

  /** Host and port. */
  static String[] address(String what, String text) {
    var found = ADDRESS.matcher(text);
    if (!found.matches() || text.contains("@") || text.contains("://")
        || Integer.parseInt(found.group(2)) > 65_535) {
      throw SourceException.option(what + ": expected host:port");
    }
    String host = found.group(1);
    if (host.startsWith("[") && host.endsWith("]")) {
      host = host.substring(1, host.length() - 1);
    }
    return new String[] {host, found.group(2)};
  }

  /** A topic or group as brokers know it; a name that has the namespace stays. */
  static String wrap(String namespace, String name) {
    if (namespace.isEmpty() || SYSTEM.contains(name) || name.startsWith("rmq_sys_")
        || name.startsWith("CID_RMQ_SYS_")) {
      return name;
    }
    String prefix = prefix(name);
    String rest = name.substring(prefix.length());
    return rest.startsWith(namespace + "%") ? name : prefix + namespace + "%" + rest;
  }

  /** A topic or group as the application knows it. */
  static String unwrap(String namespace, String name) {
    String prefix = prefix(name);
    String rest = name.substring(prefix.length());
    return !namespace.isEmpty() && rest.startsWith(namespace + "%")
        ? prefix + rest.substring(namespace.length() + 1) : name;
  }

  private static String prefix(String name) {
    return name.startsWith(RETRY) ? RETRY : name.startsWith(DEAD) ? DEAD : "";
  }
}
