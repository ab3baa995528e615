package mqcore.interop;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** A push consumer that writes every message it gets as a JSON line and ends after `--count`. */
final class Consume {
    private static final int REFRESH_MS = 1_000;    // half a minute would be waited for else

    private final Lines lines;
    private final CountDownLatch missing;
    private final CountDownLatch first;
    private final boolean rejectsOnce;
    private final boolean rejectsAlways;
    private final Set<String> rejected = ConcurrentHashMap.newKeySet();

    private Consume(Lines lines, int count, int first, boolean rejectsOnce,
                    boolean rejectsAlways) {
        this.lines = lines;
        this.missing = new CountDownLatch(count);
        this.first = new CountDownLatch(first);
        this.rejectsOnce = rejectsOnce;
        this.rejectsAlways = rejectsAlways;
    }

    /** Returns the exit code: 0, or 3 when fewer than `--count` messages came in `--timeout` s. */
    static int run(Options options) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setPollNameServerInterval(REFRESH_MS);
        consumer.setHeartbeatBrokerInterval(REFRESH_MS);
        consumer.setMaxReconsumeTimes(options.number("max-reconsume", -1));
        if (options.flag("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        for (String topic : options.text("topic").split(",")) {
            if (options.flag("sql")) {
                consumer.subscribe(topic, MessageSelector.bySql(options.text("sql")));
            } else {
                consumer.subscribe(topic, options.text("expression", "*"));
            }
        }
        try (Lines lines = new Lines(options.text("out"))) {
            Consume consume = new Consume(lines, options.number("count", 1),
                options.number("then-at", 0), options.flag("reject-once"), options.flag("reject-always"));
            consume.listen(consumer, options.flag("orderly"));
            try {
                consumer.start();
                Desk.out().println("ready");
                if (options.flag("then-sql")) {
                    consume.first.await();
                    for (String topic : options.text("topic").split(",")) {
                        consumer.subscribe(topic, MessageSelector.bySql(options.text("then-sql")));
                    }
                    Desk.out().println("changed");  // the brokers know it: subscribe tells them
                }
                boolean all = consume.missing.await(options.number("timeout", 60), TimeUnit.SECONDS);
                Thread.sleep(options.number("linger-ms", 1000));    // room for what must not come
                return all ? 0 : 3;
            } finally {
                consumer.shutdown();
            }
        }
    }

    private void listen(DefaultMQPushConsumer consumer, boolean orderly) {
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                acceptAll(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                acceptAll(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
    }

    private boolean acceptAll(List<MessageExt> messages) {
        boolean accepted = true;
        for (MessageExt message : messages) {       // one a call: consumeMessageBatchMaxSize is 1
            accepted &= !rejectsAlways;
            accepted &= !rejectsOnce || !rejected.add(message.getUserProperty("mid"));
            Map<String, Object> line = Lines.describe(message);
            line.put("accepted", accepted);
            lines.write(line);
            if (accepted) {
                missing.countDown();
                first.countDown();
            }
        }
        return accepted;
    }
}
