import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official Java client: every kind of message and consumer; prints what it saw as one JSON object. */
public class Official {
  static final long WAIT_MS = 60_000;
  static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  static final Map<String, List<Long>> got = new ConcurrentHashMap<>();

  static String body(MessageView message) {
    ByteBuffer bytes = message.getBody();
    return StandardCharsets.UTF_8.decode(bytes.duplicate()).toString();
  }

  static MessageBuilder message(String body) {
    return PROVIDER.newMessageBuilder().setTopic("JavaTopic").setBody(body.getBytes(StandardCharsets.UTF_8));
  }

  public static void main(String[] arguments) throws Exception {
    ClientConfigurationBuilder configured = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
        .enableSsl(arguments[1].equals("tls"));
    if (arguments.length > 2) {
      configured.setCredentialProvider(new StaticSessionCredentialsProvider(arguments[2], arguments[3]));
    }
    ClientConfiguration configuration = configured.build();
    FilterExpression all = new FilterExpression("*", FilterExpressionType.TAG);
    PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
        .setConsumerGroup("JavaPush").setSubscriptionExpressions(Map.of("JavaTopic", all))
        .setMessageListener(one -> {
          got.computeIfAbsent(body(one), key -> new CopyOnWriteArrayList<>()).add(System.currentTimeMillis());
          boolean fails = body(one).equals("again") && one.getDeliveryAttempt() == 1;
          return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        }).build();
    Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
        .setTopics("JavaTopic").setTransactionChecker(one -> body(one).equals("asked, committed")
            ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK).build();
    producer.send(message("normal").setTag("tag").setKeys("key").addProperty("name", "value").build());
    producer.send(message("again").build());
    producer.send(message("in order").setMessageGroup("group").build());
    long due = System.currentTimeMillis() + 2000;
    producer.send(message("later").setDeliveryTimestamp(due).build());
    for (String text : new String[] {"committed", "rolled back", "asked, committed", "asked, rolled back"}) {
      Transaction transaction = producer.beginTransaction();
      producer.send(message(text).build(), transaction);
      if (text.equals("committed")) transaction.commit();
      if (text.equals("rolled back")) transaction.rollback();
    }
    List<String> wanted = List.of("normal", "in order", "later", "committed", "asked, committed");
    long until = System.currentTimeMillis() + WAIT_MS;
    while (System.currentTimeMillis() < until
        && !(got.keySet().containsAll(wanted) && got.getOrDefault("again", List.of()).size() == 2)) {
      Thread.sleep(20);
    }
    SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
        .setConsumerGroup("JavaSimple").setAwaitDuration(Duration.ofSeconds(2))
        .setSubscriptionExpressions(Map.of("JavaTopic", new FilterExpression("tag", FilterExpressionType.TAG)))
        .build();
    List<MessageView> received = List.of();
    while (received.isEmpty() && System.currentTimeMillis() < until + WAIT_MS) {
      received = simple.receive(16, Duration.ofSeconds(30));
    }
    MessageView one = received.get(0);
    simple.changeInvisibleDuration(one, Duration.ofSeconds(20));
    simple.ack(one);
    String counts = got.entrySet().stream().map(entry -> "\"" + entry.getKey() + "\": " + entry.getValue().size())
        .collect(Collectors.joining(", "));
    System.out.println("{\"push\": {" + counts + "}, \"late_ms\": " + (got.get("later").get(0) - due)
        + ", \"simple\": [" + received.size() + ", \"" + body(one) + "\", \"" + one.getTag().get() + "\", \""
        + one.getKeys().iterator().next() + "\", \"" + one.getProperties().get("name") + "\"]}");
    System.out.flush();
    while (System.in.read() >= 0) {                      // it stays as long as its input
    }
    Runtime.getRuntime().halt(0);
  }
}
