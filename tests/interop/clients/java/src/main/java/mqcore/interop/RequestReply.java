package mqcore.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests that travel as messages, and a consumer that replies to each with its body reversed. */
final class RequestReply {
    private RequestReply() {
    }

    static void run(Options options) throws Exception {
        String namesrv = options.text("namesrv");
        String topic = options.text("topic");
        DefaultMQProducer replier = new DefaultMQProducer("PG-java-replier");
        replier.setNamesrvAddr(namesrv);
        replier.setInstanceName("replier");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("replier");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            reply(replier, messages));
        DefaultMQProducer requester = new DefaultMQProducer("PG-java-requester");
        requester.setNamesrvAddr(namesrv);
        requester.setInstanceName("requester");
        replier.start();
        consumer.start();
        requester.start();
        try (Lines lines = new Lines(options.text("out"))) {
            for (int i = 0; i < options.number("count", 1); i++) {
                byte[] body = ("request " + i).getBytes(StandardCharsets.UTF_8);
                Message answer = requester.request(new Message(topic, body), 30_000);
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("reply", new String(answer.getBody(), StandardCharsets.UTF_8));
                lines.write(line);
            }
        } finally {
            requester.shutdown();
            consumer.shutdown();
            replier.shutdown();
        }
    }

    private static ConsumeConcurrentlyStatus reply(DefaultMQProducer replier,
                                                   List<MessageExt> messages) {
        try {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                String reversed = new StringBuilder(body).reverse().toString();
                replier.send(MessageUtil.createReplyMessage(message,
                    reversed.getBytes(StandardCharsets.UTF_8)));
            }
        } catch (Exception error) {
            error.printStackTrace();
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }
}
