package mqcore.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls `--count` messages of queue 0 of each of `--topic`, which name servers need not know, from the
 * broker that has `--parent`, waits for each, commits the offset, and reads it back.
 */
final class PullQueue {
    private static final long WAIT_S = 30;

    private PullQueue() {
    }

    static void run(Options options) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.start();
        try (Lines lines = new Lines(options.text("out"))) {
            consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                .updateTopicRouteInfoFromNameServer(options.text("parent"));
            Set<MessageQueue> known = consumer.fetchSubscribeMessageQueues(options.text("parent"));
            String broker = known.iterator().next().getBrokerName();
            for (String topic : options.text("topic").split(",")) {
                pull(consumer, new MessageQueue(topic, broker, 0), options.number("count", 1),
                    lines);
            }
        } finally {
            consumer.shutdown();
        }
    }

    private static void pull(DefaultMQPullConsumer consumer, MessageQueue queue, int count,
                             Lines lines) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        long offset = Math.max(consumer.fetchConsumeOffset(queue, true), 0);
        int seen = 0;
        while (seen < count) {
            PullResult result = consumer.pullBlockIfNotFound(queue, "*", offset, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    Map<String, Object> line = Lines.describe(message);
                    line.put("pulledFrom", queue.getTopic());
                    lines.write(line);
                    seen++;
                }
            }
            offset = result.getNextBeginOffset();
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(queue + ": " + seen + " of " + count);
            }
        }
        commit(consumer, queue, offset, deadline);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("committed", queue.getTopic());
        line.put("at", offset);
        lines.write(line);
    }

    /** Commits travel one-way: ask until the broker has it. */
    private static void commit(DefaultMQPullConsumer consumer, MessageQueue queue, long offset,
                               long deadline) throws Exception {
        while (consumer.fetchConsumeOffset(queue, true) != offset) {
            consumer.updateConsumeOffset(queue, offset);
            consumer.getOffsetStore().persist(queue);
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(queue + ": the offset " + offset + " is not kept");
            }
        }
    }
}
