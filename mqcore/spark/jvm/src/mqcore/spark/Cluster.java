package mqcore.spark;

import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;

/**
 * A driver's questions to a cluster: topics, their queues, where these begin and end. Every method
 * that asks throws IOException, with a message of one line.
 */
final class Cluster {
  static final JsonMapper MAPPER =
      JsonMapper.builder().enable(JsonReadFeature.ALLOW_UNQUOTED_FIELD_NAMES).build();
  static final String READ_GROUP = "TOOLS_CONSUMER";    // every broker has it
  private static final int PULL = 11;
  private static final int COMMITTED = 14;
  private static final int MAX_OFFSET = 30;
  private static final int CHECK_CLIENT_CONFIG = 46;
  private static final int MIN_OFFSET = 31;
  private static final int ROUTE = 105;
  private static final int TOPICS = 206;
  private static final long ROUTE_NANOS = 1_000_000_000L;   // routes are believed for so long
  private static final int AT_ONCE = 64;
  private static final int QUEUES_MAX = 65_536;
  private static final int READABLE = 4;
  private static final int SAMPLE = 32;
  private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
  private static final String SUBSCRIBES = "4";             // of a pull's sysFlag

  private final Client client;
  private final Map<String, List<Queue>> queues = new HashMap<>();
  private final Map<String, Long> asked = new HashMap<>();
  private final Map<String, TreeMap<Integer, String>> brokers = new HashMap<>();

  Cluster(Client client) {
    this.client = client;
  }

  /** All topics that name servers know and the application can name. */
  List<String> topics() throws IOException {
    Answer answer = nameServer(TOPICS, new TreeMap<>());
    if (answer.code != Answer.SUCCESS) {
      throw new IOException(answer.shown("name server"));
    }
    TreeSet<String> found = new TreeSet<>();
    for (JsonNode each : MAPPER.readTree(answer.body).path("topicList")) {
      String name = each.asText();
      if (client.wrap(Names.unwrap(client.namespace, name)).equals(name)) {
        found.add(Names.unwrap(client.namespace, name));
      }
    }
    return new ArrayList<>(found);
  }

  /** The queues to read of a topic; null: there is no such topic (any more). */
  List<Queue> queues(String topic) throws IOException {
    Long since = asked.get(topic);
    if (since == null || System.nanoTime() - since > ROUTE_NANOS) {
      queues.put(topic, route(topic));
      asked.put(topic, System.nanoTime());
    }
    return queues.get(topic);
  }

  /** The queue of op records is where half messages are: no name server knows it. */
  private List<Queue> route(String topic) throws IOException {
    Answer answer = nameServer(ROUTE, fields(
        "topic", Subject.isPulled(topic) ? client.wrap(topic) : HALF_TOPIC,
        "acceptStandardJsonOnly", "true"));
    if (answer.code == Answer.TOPIC_NOT_EXIST) {
      return null;
    }
    if (answer.code != Answer.SUCCESS) {
      throw new IOException("the route of " + topic + ": " + answer.shown("name server"));
    }
    JsonNode said = MAPPER.readTree(answer.body);
    for (JsonNode broker : said.path("brokerDatas")) {
      TreeMap<Integer, String> addresses = new TreeMap<>();
      for (Map.Entry<String, JsonNode> one : broker.path("brokerAddrs").properties()) {
        addresses.put(Integer.parseInt(one.getKey()), one.getValue().asText());
      }
      brokers.put(broker.path("brokerName").asText(), addresses);
    }
    List<Queue> found = new ArrayList<>();
    for (JsonNode one : said.path("queueDatas")) {
      int count = one.path("readQueueNums").asInt();
      if ((one.path("perm").asInt() & READABLE) == 0) {
        continue;
      }
      if (count > QUEUES_MAX - found.size()) {
        throw new IOException("route of " + topic + ": more than " + QUEUES_MAX + " queues");
      }
      for (int id = 0; id < count; id++) {
        found.add(new Queue(topic, one.path("brokerName").asText(), id));
      }
    }
    return found;
  }

  /** Where to read from: the master, else a slave. */
  String address(String broker) throws IOException {
    TreeMap<Integer, String> known = brokers.get(broker);
    if (known == null || known.isEmpty()) {
      throw new IOException("broker " + broker + " is unknown");
    }
    return known.firstEntry().getValue();
  }

  /** Asks a queue's broker whether it takes a filter. */
  Answer check(Queue queue, String expression, String type) throws IOException {
    ObjectNode body = MAPPER.createObjectNode().put("clientId", Source.NAME)
        .put("group", READ_GROUP).put("namespace", client.namespace);
    ObjectNode data = body.putObject("subscriptionData")
        .put("topic", client.wrap(queue.topic())).put("subString", expression)
        .put("expressionType", type).put("subVersion", 0).put("classFilterMode", false);
    data.putArray("tagsSet");
    data.putArray("codeSet");
    Link link = Link.fresh(address(queue.broker()), client);
    try {
      return link.call(CHECK_CLIENT_CONFIG, new TreeMap<>(), MAPPER.writeValueAsBytes(body),
          client.callMillis);
    } finally {
      link.close();
    }
  }

  private Answer nameServer(int code, TreeMap<String, String> fields) throws IOException {
    IOException failure = null;
    for (String server : client.servers) {
      try {
        return call(server, code, fields);
      } catch (IOException error) {
        failure = error;
      }
    }
    throw failure;
  }

  private Answer call(String address, int code, TreeMap<String, String> fields)
      throws IOException {
    return calls(address, code, List.of(fields)).get(0);
  }

  /** The answers in the order of the questions. A connection that was kept may be broken. */
  private List<Answer> calls(String address, int code, List<TreeMap<String, String>> questions)
      throws IOException {
    try {
      return calls(Link.open(address, client), code, questions);
    } catch (IOException error) {
      return calls(Link.fresh(address, client), code, questions);
    }
  }

  private List<Answer> calls(Link link, int code, List<TreeMap<String, String>> questions)
      throws IOException {
    Answer[] found = new Answer[questions.size()];
    Map<Integer, Integer> waiting = new HashMap<>();
    int sent = 0;
    try {
      for (int got = 0; got < found.length;) {
        while (sent < found.length && waiting.size() < AT_ONCE) {
          waiting.put(link.send(code, questions.get(sent)), sent);
          sent++;
        }
        Answer answer = link.answer(client.callMillis);
        Integer index = waiting.remove(answer.opaque);
        if (index != null) {
          found[index] = answer;
          got++;
        }
      }
    } catch (IOException error) {
      link.close();
      throw error;
    }
    Link.keep(link);
    return List.of(found);
  }

  static TreeMap<String, String> fields(String... namesAndValues) {
    TreeMap<String, String> made = new TreeMap<>();
    for (int index = 0; index < namesAndValues.length; index += 2) {
      made.put(namesAndValues[index], namesAndValues[index + 1]);
    }
    return made;
  }

  // -- questions for each of many queues ----------------------------------------------------------

  /** The answers for queues; `away` has the brokers that did not answer, and why. */
  record Known(TreeMap<Queue, Long> offsets, TreeMap<String, String> away) {
    TreeMap<Queue, Long> all() throws IOException {
      if (!away.isEmpty()) {
        throw new IOException(
            "broker " + away.firstKey() + ": " + away.firstEntry().getValue());
      }
      return offsets;
    }
  }

  private interface Reads {
    Long of(Answer answer) throws IOException;
  }

  TreeMap<Queue, Long> begins(Collection<Queue> wanted) throws IOException {
    return numbers(MIN_OFFSET, wanted).all();
  }

  TreeMap<Queue, Long> ends(Collection<Queue> wanted) throws IOException {
    return numbers(MAX_OFFSET, wanted).all();
  }

  Known knownEnds(Collection<Queue> wanted) {
    return numbers(MAX_OFFSET, wanted);
  }

  private Known numbers(int code, Collection<Queue> wanted) {
    return each(code, wanted, this::place, answer -> {
      long offset = answer.code == Answer.SUCCESS ? answer.number("offset") : -1;
      if (offset < 0) {
        throw new IOException(answer.shown("the broker"));
      }
      return offset;
    });
  }

  private TreeMap<String, String> place(Queue queue) {
    return fields("topic", client.wrap(queue.topic()), "queueId", Integer.toString(queue.id()),
        "bname", queue.broker());
  }

  /** The offsets that a group committed; queues without are left out. */
  TreeMap<Queue, Long> committed(String group, Collection<Queue> wanted) throws IOException {
    TreeMap<Queue, Long> found = each(COMMITTED, wanted, queue -> {
      TreeMap<String, String> asks = place(queue);
      asks.put("consumerGroup", client.wrap(group));
      return asks;
    }, answer -> {
      if (answer.code != Answer.SUCCESS && answer.code != Answer.QUERY_NOT_FOUND) {
        throw new IOException(answer.shown("the broker"));
      }
      return answer.code == Answer.SUCCESS ? answer.number("offset") : -1L;
    }).all();
    found.values().removeIf(offset -> offset < 0);
    return found;
  }

  /** The mean bytes of the messages at an offset of each queue; 1 where none is. */
  TreeMap<Queue, Long> sizes(Map<Queue, Long> offsets) throws IOException {
    return each(PULL, offsets.keySet(), queue -> pull(queue, offsets.get(queue), SAMPLE),
        answer -> {
          if (answer.code != Answer.SUCCESS) {
            return 1L;
          }
          int count = Records.count(answer.body);
          return Math.max(1L, answer.body.length / Math.max(1, count));
        }).all();
  }

  private Known each(int code, Collection<Queue> wanted,
      Function<Queue, TreeMap<String, String>> question, Reads reads) {
    Map<String, List<Queue>> byBroker = new LinkedHashMap<>();
    for (Queue queue : wanted) {
      byBroker.computeIfAbsent(queue.broker(), name -> new ArrayList<>()).add(queue);
    }
    Known found = new Known(new TreeMap<>(), new TreeMap<>());
    byBroker.forEach((broker, some) -> {
      try {
        List<Answer> answers =
            calls(address(broker), code, some.stream().map(question).toList());
        for (int index = 0; index < some.size(); index++) {
          found.offsets.put(some.get(index), reads.of(answers.get(index)));
        }
      } catch (IOException error) {
        found.away.put(broker, error.getMessage());
      }
    });
    return found;
  }

  // -- times --------------------------------------------------------------------------------------

  /**
   * The first offset of each queue that was stored at its time or later; else its end. By looking
   * at messages: what brokers say of a time is the nearest message, which may be earlier.
   */
  TreeMap<Queue, Long> atTimes(Map<Queue, Long> times) throws IOException {
    TreeMap<Queue, Long> lows = begins(times.keySet());
    TreeMap<Queue, Long> highs = ends(times.keySet());
    TreeMap<Queue, Long> found = new TreeMap<>();
    for (Map.Entry<Queue, Long> each : times.entrySet()) {
      long low = lows.get(each.getKey());
      long high = highs.get(each.getKey());
      while (low < high) {
        long middle = low + (high - low) / 2;
        long[] first = first(each.getKey(), middle);
        if (first[0] >= high) {
          high = middle;                  // between both nothing is there any more
        } else if (first[1] < each.getValue()) {
          low = first[0] + 1;
        } else {
          high = middle;
        }
      }
      found.put(each.getKey(), low);
    }
    return found;
  }

  /** Offset and store time of the first message at an offset or behind it. */
  private long[] first(Queue queue, long offset) throws IOException {
    while (true) {
      Answer answer = call(address(queue.broker()), PULL, pull(queue, offset, 1));
      if (answer.code == Answer.SUCCESS) {
        return Records.first(answer.body);
      }
      long following = answer.number("nextBeginOffset");
      boolean moved = answer.code == Answer.PULL_OFFSET_MOVED
          || answer.code == Answer.PULL_RETRY_IMMEDIATELY || answer.code == Answer.PULL_NOT_FOUND;
      if (!moved || following <= offset) {
        throw new IOException(answer.shown(address(queue.broker())));
      }
      offset = following;
    }
  }

  private TreeMap<String, String> pull(Queue queue, long offset, int count) {
    TreeMap<String, String> asks = place(queue);
    asks.putAll(fields("consumerGroup", READ_GROUP, "queueOffset", Long.toString(offset),
        "maxMsgNums", Integer.toString(count), "sysFlag", SUBSCRIBES, "commitOffset", "0",
        "suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0",
        "expressionType", "TAG"));
    return asks;
  }
}
