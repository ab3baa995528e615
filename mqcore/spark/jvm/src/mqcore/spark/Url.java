package mqcore.spark;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * The option `nameServer`: `host:port;host:port`, or a URL
 * `rocketmq://key:secret@host:9876;host2:9876/namespace?tls=verify`, as `mqcore.client.config` has
 * it. A URL counts before the options `rocketmq.*`; null or empty: it does not say.
 */
record Url(List<String> servers, String accessKey, String secretKey, String namespace,
    TreeMap<String, String> tls) {
  private static final String SCHEME = "rocketmq://";
  private static final Set<String> PASSED_OVER = Set.of("instance_name", "unit_name");

  static Url parse(String text) {
    if (!text.startsWith(SCHEME)) {
      return new Url(Names.servers(text), null, null, "", new TreeMap<>());
    }
    String[] parts = text.substring(SCHEME.length()).split("\\?", 2);
    String[] rest = parts[0].split("/", 2);
    int at = rest[0].lastIndexOf('@');
    TreeMap<String, String> said = query(parts.length < 2 ? "" : parts[1]);
    if (rest.length > 1 && rest[1].contains("@")
        || said.keySet().stream().anyMatch(name -> name.contains("@"))) {
      throw SourceException.option("nameServer: expected / and ? of a key or secret in a "
          + SCHEME + " URL as %2F and %3F");
    }
    TreeMap<String, String> tls = new TreeMap<>();
    for (Map.Entry<String, String> each : said.entrySet()) {
      if (Tls.OPTIONS.contains(each.getKey())) {
        tls.put(each.getKey(), each.getValue());
      } else if (!PASSED_OVER.contains(each.getKey())) {
        throw SourceException.option("nameServer: URL option " + each.getKey()
            + " is unknown: " + Names.hint(each.getKey(), Tls.OPTIONS));
      }
    }
    Tls.check(tls);
    String[] account = at < 0 ? new String[] {null, null}
        : (rest[0].substring(0, at) + ":").split(":", -1);
    String namespace = rest.length < 2 ? "" : decoded(rest[1], false);
    return new Url(Names.servers(rest[0].substring(at + 1)), decoded(account[0], false),
        decoded(account[1], false), namespace, tls);
  }

  private static TreeMap<String, String> query(String text) {
    TreeMap<String, String> found = new TreeMap<>();
    for (String part : text.split("&")) {
      if (!part.isEmpty()) {
        String[] pair = (part + "=").split("=", -1);
        found.put(decoded(pair[0], true), decoded(pair[1], true));
      }
    }
    return found;
  }

  /** `%2F` and its like in plain; `+` is a blank in what follows `?` only. */
  private static String decoded(String text, boolean isQuery) {
    if (text == null) {
      return null;
    }
    try {
      return URLDecoder.decode(isQuery ? text : text.replace("+", "%2B"), StandardCharsets.UTF_8);
    } catch (IllegalArgumentException error) {          // it would show what may be a secret
      throw SourceException.option("nameServer: expected %2F and its like in a " + SCHEME
          + " URL in hexadecimal digits");
    }
  }
}
