import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official Java client at a desk: see tests/grpc/desk.py. */
public class Desk {
  static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  static final Pattern MEMBER = Pattern.compile("\"(\\w+)\": (?:\"((?:[^\"\\\\]|\\\\.)*)\"|(\\d+)|\\[([^]]*)\\])");
  static final Map<String, List<String>> got = new ConcurrentHashMap<>();
  static final Map<String, SimpleConsumer> simples = new HashMap<>();
  static ClientConfiguration configuration;
  static Producer producer;

  static String body(MessageView message) {
    ByteBuffer bytes = message.getBody();
    return StandardCharsets.UTF_8.decode(bytes.duplicate()).toString();
  }

  static String quoted(String text) {
    return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\"";
  }

  /** The members of an order; lists as their text. */
  static Map<String, String> members(String line) {
    Map<String, String> members = new HashMap<>();
    for (Matcher one = MEMBER.matcher(line); one.find(); ) {
      String list = one.group(4);
      members.put(one.group(1), list != null ? list.replaceAll("[\" ]", "")
          : one.group(2) != null ? one.group(2) : one.group(3));
    }
    return members;
  }

  static Message message(Map<String, String> order) {
    MessageBuilder one = PROVIDER.newMessageBuilder().setTopic(order.get("topic"))
        .setBody(order.get("body").getBytes(StandardCharsets.UTF_8));
    if (order.containsKey("tag")) one.setTag(order.get("tag"));
    if (order.containsKey("key")) one.setKeys(order.get("key"));
    if (order.containsKey("property")) one.addProperty("name", order.get("property"));
    if (order.containsKey("order")) one.setMessageGroup(order.get("order"));
    if (order.containsKey("deliver_ms")) one.setDeliveryTimestamp(Long.parseLong(order.get("deliver_ms")));
    return one.build();
  }

  static TransactionResolution check(MessageView message) {
    if (body(message).endsWith("commit")) return TransactionResolution.COMMIT;
    return body(message).endsWith("rollback") ? TransactionResolution.ROLLBACK : TransactionResolution.UNKNOWN;
  }

  static ConsumeResult consume(String group, MessageView message) {
    String body = body(message);
    List<String> before = got.computeIfAbsent(group, key -> new CopyOnWriteArrayList<>());
    boolean isFirst = before.stream().noneMatch(one -> one.startsWith("[" + quoted(body) + ","));
    before.add("[" + quoted(body) + ", " + message.getDeliveryAttempt() + ", " + System.currentTimeMillis() + "]");
    boolean fails = body.startsWith("again") && isFirst || body.startsWith("never");
    return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
  }

  static Map<String, FilterExpression> filters(Map<String, String> order) {
    FilterExpressionType type = order.containsKey("sql") ? FilterExpressionType.SQL92 : FilterExpressionType.TAG;
    return Map.of(order.get("topic"), new FilterExpression(order.getOrDefault("sql", order.get("tag")), type));
  }

  static String receive(SimpleConsumer consumer) throws Exception {
    List<String> seen = new ArrayList<>();
    for (MessageView one : consumer.receive(16, Duration.ofSeconds(30))) {
      consumer.changeInvisibleDuration(one, Duration.ofSeconds(20));
      consumer.ack(one);
      List<String> keys = one.getKeys().stream().map(Desk::quoted).toList();
      seen.add("{\"id\": " + quoted(one.getMessageId().toString()) + ", \"body\": " + quoted(body(one)) + ", \"tag\": "
          + quoted(one.getTag().orElse("")) + ", \"keys\": " + keys + ", \"property\": "
          + quoted(one.getProperties().getOrDefault("name", "")) + ", \"attempt\": " + one.getDeliveryAttempt() + "}");
    }
    return "{\"messages\": " + seen + "}";
  }

  static String serve(Map<String, String> order) throws Exception {
    String group = order.get("group");
    switch (order.get("do")) {
      case "producer":
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(order.get("topics").split(",")).setTransactionChecker(Desk::check).build();
        return "{}";
      case "send":
        return "{\"id\": " + quoted(producer.send(message(order)).getMessageId().toString()) + "}";
      case "transact":
        Transaction transaction = producer.beginTransaction();
        String id = producer.send(message(order), transaction).getMessageId().toString();
        if (order.get("end").equals("commit")) transaction.commit();
        if (order.get("end").equals("rollback")) transaction.rollback();
        return "{\"id\": " + quoted(id) + "}";
      case "push":
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(filters(order)).setMessageListener(one -> consume(group, one)).build();
        return "{}";
      case "got":
        return "{\"got\": " + got.getOrDefault(group, List.of()) + "}";
      case "simple":
        simples.put(group, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(2))
            .setSubscriptionExpressions(filters(order)).build());
        return "{}";
      case "receive":
        return receive(simples.get(group));
      default:
        throw new IllegalArgumentException("no such order: " + order);
    }
  }

  public static void main(String[] arguments) throws Exception {
    configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
        .enableSsl(arguments[1].equals("tls")).build();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String said;
      try {
        said = serve(members(line));
      } catch (Exception error) {
        said = "{\"error\": " + quoted(String.valueOf(error)) + "}";
      }
      System.out.println("> " + said);
      System.out.flush();
    }
    Runtime.getRuntime().halt(0);
  }
}
