package mqcore.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** A push consumer whose listener fails, dawdles or hangs as it is told. */
final class PushMember {
    private static final int HANG_S_MAX = 120;
    private static final int NO_EXPIRY_MIN = 1_000;

    private final String name;
    private final Lines deliveries;
    private final DefaultMQPushConsumer consumer;
    private final Map<String, Integer> failures = new ConcurrentHashMap<>();
    private final AtomicInteger calls = new AtomicInteger();
    private final CountDownLatch released = new CountDownLatch(1);
    private final int fails;
    private final Integer delayLevel;
    private final long dawdleMs;
    private final String hangsOn;

    PushMember(String name, String namesrv, Lines deliveries, JSONObject command)
        throws Exception {
        this.name = name;
        this.deliveries = deliveries;
        fails = command.getIntValue("fails");
        delayLevel = command.getInteger("delayLevel");
        dawdleMs = command.getLongValue("dawdle");
        hangsOn = command.getString("hangsOn");
        consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeFromWhere(
            ConsumeFromWhere.valueOf(command.getString("from")));
        if (command.containsKey("timestamp")) {
            consumer.setConsumeTimestamp(command.getString("timestamp"));
        }
        if (command.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        consumer.setConsumeMessageBatchMaxSize(command.getIntValue("batch"));
        consumer.setMaxReconsumeTimes(command.getIntValue("maxReconsume"));
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.setPollNameServerInterval(command.getIntValue("routes"));
        consumer.setHeartbeatBrokerInterval(command.getIntValue("heartbeats"));
        consumer.setConsumeTimeout(NO_EXPIRY_MIN);
        consumer.subscribe(command.getString("topic"), command.getString("expression"));
        if (command.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                accepts(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (delayLevel != null) {
                    context.setDelayLevelWhenNextConsume(delayLevel);
                }
                return accepts(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
    }

    Object execute(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        switch (command.getString("do")) {
            case "held":
                return held(topic);
            case "subscribe":
                consumer.subscribe(topic, command.getString("expression"));
                return null;
            case "suspend":
                consumer.suspend();
                return null;
            case "resume":
                consumer.resume();
                return null;
            case "release":
                released.countDown();
                return null;
            case "expire":
                return expire();
            default:
                throw new IllegalArgumentException("unknown: " + command);
        }
    }

    void stop() {
        released.countDown();
        consumer.shutdown();
    }

    /** The ids of the queues of a topic that it pulls from. */
    private TreeSet<Integer> held(String topic) {
        TreeSet<Integer> ids = new TreeSet<>();
        for (MessageQueue queue : queues().keySet()) {
            if (queue.getTopic().equals(topic)) {
                ids.add(queue.getQueueId());
            }
        }
        return ids;
    }

    /**
     * What the client does every consumeTimeout, as if it had been 0 minutes: its setting counts
     * whole minutes.
     */
    private int expire() {
        consumer.setConsumeTimeout(0);
        for (ProcessQueue queue : queues().values()) {
            queue.cleanExpiredMsg(consumer);
        }
        consumer.setConsumeTimeout(NO_EXPIRY_MIN);
        return queues().size();
    }

    private ConcurrentMap<MessageQueue, ProcessQueue> queues() {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
    }

    private boolean accepts(List<MessageExt> messages) {
        int call = calls.incrementAndGet();
        boolean accepted = true;
        List<Map<String, Object>> lines = new ArrayList<>();
        for (MessageExt message : messages) {
            accepted &= fails == 0 || failures.merge(message.getKeys(), 1, Integer::sum) > fails
                && fails > 0;
            Map<String, Object> line = Lines.describe(message);
            line.put("member", name);
            line.put("call", call);
            lines.add(line);
        }
        for (Map<String, Object> line : lines) {
            line.put("accepted", accepted);
            deliveries.write(line);
        }
        try {
            Thread.sleep(dawdleMs);
            if (messages.get(0).getReconsumeTimes() == 0
                && Objects.equals(messages.get(0).getKeys(), hangsOn)) {
                released.await(HANG_S_MAX, TimeUnit.SECONDS);
            }
        } catch (InterruptedException error) {
            return false;
        }
        return accepted;
    }
}
