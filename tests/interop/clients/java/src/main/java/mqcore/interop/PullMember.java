package mqcore.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A lite pull consumer, or with `old` a DefaultMQPullConsumer, of one topic; queues by their ids. */
final class PullMember {
    private final String topic;
    private final DefaultLitePullConsumer lite;
    private final DefaultMQPullConsumer old;
    private final Map<Integer, MessageQueue> queues = new TreeMap<>();

    PullMember(String namesrv, JSONObject command) throws Exception {
        topic = command.getString("topic");
        String group = command.getString("group");
        if (command.getBooleanValue("old")) {
            lite = null;
            old = new DefaultMQPullConsumer(group);
            old.setNamesrvAddr(namesrv);
            old.setInstanceName(command.getString("member"));
            old.start();
            remember(old.fetchSubscribeMessageQueues(topic));
            return;
        }
        old = null;
        lite = new DefaultLitePullConsumer(group);
        lite.setNamesrvAddr(namesrv);
        lite.setInstanceName(command.getString("member"));
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.setAutoCommit(command.getBooleanValue("autoCommit"));
        lite.setAutoCommitIntervalMillis(1_000);
        lite.setPersistConsumerOffsetInterval(500);
        lite.setPullBatchSize(command.getIntValue("batch"));
        String expression = command.getString("expression");
        if (command.containsKey("queues")) {
            lite.setSubExpressionForAssign(topic, expression);
        } else {
            lite.subscribe(topic, expression);
        }
        lite.start();
        remember(lite.fetchMessageQueues(topic));
        if (command.containsKey("queues")) {
            lite.assign(chosen(command));
        }
    }

    private void remember(Collection<MessageQueue> known) {
        for (MessageQueue queue : known) {
            queues.put(queue.getQueueId(), queue);
        }
    }

    Object execute(JSONObject command) throws Exception {
        return lite == null ? executeOld(command) : executeLite(command);
    }

    private Object executeLite(JSONObject command) throws Exception {
        MessageQueue queue = queues.get(command.getIntValue("queue"));
        switch (command.getString("do")) {
            case "poll":
                return described(lite.poll(command.getLongValue("timeout")));
            case "assign":
                lite.assign(chosen(command));
                return null;
            case "held":
                TreeSet<Integer> ids = new TreeSet<>();
                for (MessageQueue held : lite.assignment()) {
                    ids.add(held.getQueueId());
                }
                return ids;
            case "seek":
                lite.seek(queue, command.getLongValue("offset"));
                return null;
            case "seek-to-begin":
                lite.seekToBegin(queue);
                return null;
            case "seek-to-end":
                lite.seekToEnd(queue);
                return null;
            case "offset-at":
                return lite.offsetForTimestamp(queue, command.getLongValue("timestamp"));
            case "committed":
                return lite.committed(queue);
            case "commit":
                lite.commitSync();
                return null;
            case "pause":
                lite.pause(chosen(command));
                return null;
            case "resume":
                lite.resume(chosen(command));
                return null;
            default:
                throw new IllegalArgumentException("unknown: " + command);
        }
    }

    private Object executeOld(JSONObject command) throws Exception {
        MessageQueue queue = queues.get(command.getIntValue("queue"));
        switch (command.getString("do")) {
            case "queues":
                return queues.keySet();
            case "take":
                PullResult result = old.pull(queue, command.getString("expression"),
                    command.getLongValue("offset"), command.getIntValue("count"));
                JSONObject answer = new JSONObject();
                answer.put("status", result.getPullStatus().name());
                answer.put("next", result.getNextBeginOffset());
                answer.put("min", result.getMinOffset());
                answer.put("max", result.getMaxOffset());
                answer.put("messages", described(result.getMsgFoundList()));
                return answer;
            case "update":
                old.updateConsumeOffset(queue, command.getLongValue("offset"));
                old.getOffsetStore().persist(queue);
                return null;
            case "committed":
                return old.fetchConsumeOffset(queue, true);
            case "offset-at":
                return old.searchOffset(queue, command.getLongValue("timestamp"));
            default:
                throw new IllegalArgumentException("unknown: " + command);
        }
    }

    void stop() {
        if (lite == null) {
            old.shutdown();
        } else {
            lite.shutdown();
        }
    }

    private List<MessageQueue> chosen(JSONObject command) {
        List<MessageQueue> found = new ArrayList<>();
        for (Object id : command.getJSONArray("queues")) {
            found.add(queues.get((Integer) id));
        }
        return found;
    }

    private static List<Object> described(List<MessageExt> messages) {
        List<Object> lines = new ArrayList<>();
        if (messages != null) {
            for (MessageExt message : messages) {
                lines.add(Lines.describe(message));
            }
        }
        return lines;
    }
}
