package mqcore.interop;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Requests that travel as messages, and a consumer that replies to each with its body reversed, and
 * after that with as many bytes as it is asked for, which no compression makes fewer. `role` leaves
 * one of the two to others: `requester`, or `replier`, which ends after `count` replies.
 */
final class RequestReply {
    private static final long REPLIES_TIMEOUT_S = 60;
    private static final long CONSUMED_MS = 200;
    private static final int SEND_TIMEOUT_MS = 10_000;      // of megabytes, on a machine that does much else

    private RequestReply() {
    }

    static void run(Options options) throws Exception {
        String namesrv = options.text("namesrv");
        String topic = options.text("topic");
        int extraBytes = options.number("extra-bytes", 0);
        int count = options.number("count", 1);
        String role = options.text("role", "both");
        CountDownLatch replied = new CountDownLatch(count);
        DefaultMQProducer replier = new DefaultMQProducer("PG-java-replier");
        replier.setNamesrvAddr(namesrv);
        replier.setInstanceName("replier");
        replier.setSendMsgTimeout(SEND_TIMEOUT_MS);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("replier");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            reply(replier, messages, extraBytes, replied));
        DefaultMQProducer requester = new DefaultMQProducer("PG-java-requester");
        requester.setNamesrvAddr(namesrv);
        requester.setInstanceName("requester");
        if (!role.equals("requester")) {
            replier.start();
            consumer.start();
        }
        requester.start();
        try (Lines lines = new Lines(options.text("out"))) {
            if (role.equals("replier")) {
                replied.await(REPLIES_TIMEOUT_S, TimeUnit.SECONDS);
                Thread.sleep(CONSUMED_MS);              // the consumer commits what it got
                count = 0;
            }
            for (int i = 0; i < count; i++) {
                byte[] body = ("request " + i).getBytes(StandardCharsets.UTF_8);
                Message answer = requester.request(new Message(topic, body), 30_000);
                Map<String, Object> line = new LinkedHashMap<>();
                int textBytes = answer.getBody().length - extraBytes;
                line.put("reply", new String(answer.getBody(), 0, textBytes, StandardCharsets.UTF_8));
                line.put("extraIsWhole", Arrays.equals(extra(extraBytes),
                    Arrays.copyOfRange(answer.getBody(), textBytes, answer.getBody().length)));
                lines.write(line);
            }
        } finally {
            requester.shutdown();
            consumer.shutdown();
            replier.shutdown();
        }
    }

    private static ConsumeConcurrentlyStatus reply(DefaultMQProducer replier,
                                                   List<MessageExt> messages,
                                                   int extraBytes, CountDownLatch replied) {
        try {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                String reversed = new StringBuilder(body).reverse().toString();
                byte[] text = reversed.getBytes(StandardCharsets.UTF_8);
                byte[] answer = Arrays.copyOf(text, text.length + extraBytes);
                System.arraycopy(extra(extraBytes), 0, answer, text.length, extraBytes);
                replier.send(MessageUtil.createReplyMessage(message, answer));
                replied.countDown();
            }
        } catch (Exception error) {
            error.printStackTrace(Desk.out());
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    private static byte[] extra(int bytes) {
        byte[] made = new byte[bytes];
        new Random(bytes).nextBytes(made);
        return made;
    }
}
