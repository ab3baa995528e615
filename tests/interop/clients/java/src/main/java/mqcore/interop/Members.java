package mqcore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Many consumers in one JVM: each line of the input is a JSON object with a command in `do`, each
 * line of the output its answer; deliveries go to the file `--out`. See tests/interop/members.py.
 */
final class Members {
    private static final int SEND_TIMEOUT_MS = 10_000;

    private final String namesrv;
    private final Lines deliveries;
    private final DefaultMQProducer producer = new DefaultMQProducer("PG-members");
    private final Map<String, PushMember> pushing = new LinkedHashMap<>();
    private final Map<String, PullMember> pulling = new LinkedHashMap<>();
    private final Map<String, Flow> flows = new LinkedHashMap<>();

    private Members(String namesrv, Lines deliveries) {
        this.namesrv = namesrv;
        this.deliveries = deliveries;
    }

    static int run(Options options) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Lines lines = new Lines(options.text("out"))) {
            Members members = new Members(options.text("namesrv"), lines);
            members.producer.setNamesrvAddr(members.namesrv);
            members.producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
            members.producer.start();
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                Map<String, Object> answer = new LinkedHashMap<>();
                try {
                    answer.put("answer", members.execute(JSON.parseObject(line)));
                } catch (Exception error) {
                    error.printStackTrace();
                    answer.put("answer", null);
                    answer.put("error", error.toString());
                }
                answers.println(JSON.toJSONString(answer));
            }
        }
        return 0;
    }

    private Object execute(JSONObject command) throws Exception {
        String name = command.getString("member");
        switch (command.getString("do")) {
            case "create-topic":
                producer.createTopic("TBW102", command.getString("topic"),
                    command.getIntValue("queues"));
                return null;
            case "send":
                return send(command);
            case "flow":
                flows.put(name, new Flow(producer, command));
                flows.get(name).start();
                return null;
            case "end-flow":
                return flows.remove(name).end();
            case "reset":
                return reset(command);
            case "push":
                pushing.put(name, new PushMember(name, namesrv, deliveries, command));
                return null;
            case "pull":
                pulling.put(name, new PullMember(namesrv, command));
                return null;
            case "stop":
                stop(name);
                return null;
            default:
                return pushing.containsKey(name) ? pushing.get(name).execute(command)
                    : pulling.get(name).execute(command);
        }
    }

    private void stop(String name) {
        if (pushing.containsKey(name)) {
            pushing.remove(name).stop();
        } else {
            pulling.remove(name).stop();
        }
    }

    /** Sends `messages` one by one; for each where it is. */
    private List<Object> send(JSONObject command) throws Exception {
        List<Object> places = new ArrayList<>();
        for (Object item : command.getJSONArray("messages")) {
            JSONObject one = (JSONObject) item;
            Message message = new Message(command.getString("topic"), one.getString("tags"),
                one.getString("key"), one.getString("key").getBytes(StandardCharsets.UTF_8));
            SendResult result = sendTo(producer, message, one.getIntValue("queue"));
            Map<String, Object> place = new LinkedHashMap<>();
            place.put("key", one.getString("key"));
            place.put("queueId", result.getMessageQueue().getQueueId());
            place.put("offset", result.getQueueOffset());
            places.add(place);
        }
        return places;
    }

    private static SendResult sendTo(DefaultMQProducer producer, Message message, int queueId)
        throws Exception {
        SendResult result = producer.send(message, (queues, sent, wanted) -> {
            for (MessageQueue queue : queues) {
                if (queue.getQueueId() == queueId) {
                    return queue;
                }
            }
            throw new IllegalArgumentException("no queue " + queueId);
        }, null);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
        return result;
    }

    /** What mqadmin resetOffsetByTime does: members are told, or the offsets of nobody are set. */
    private String reset(JSONObject command) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin-" + System.nanoTime());
        admin.start();
        String topic = command.getString("topic");
        String group = command.getString("group");
        long timestamp = command.getLongValue("timestamp");
        try {
            admin.resetOffsetByTimestamp(topic, group, timestamp, true);
            return "members";
        } catch (Exception error) {
            if (!isOffline(error)) {
                throw error;
            }
            admin.resetOffsetByTimestampOld(group, topic, timestamp, true);
            return "offsets";
        } finally {
            admin.shutdown();
        }
    }

    private static boolean isOffline(Exception error) {
        String text = String.valueOf(error.getMessage());
        return text.contains("CODE: " + ResponseCode.CONSUMER_NOT_ONLINE)
            || error instanceof MQBrokerException
            && ((MQBrokerException) error).getResponseCode() == ResponseCode.CONSUMER_NOT_ONLINE;
    }

    /** A thread that sends to the queues in turn, until it is told to end. */
    private static final class Flow extends Thread {
        private final DefaultMQProducer producer;
        private final String topic;
        private final int queues;
        private final long intervalMs;
        private final List<Object> acknowledged = new ArrayList<>();
        private volatile boolean ending;

        Flow(DefaultMQProducer producer, JSONObject command) {
            super("flow");
            this.producer = producer;
            topic = command.getString("topic");
            queues = command.getIntValue("queues");
            intervalMs = command.getLongValue("interval");
        }

        @Override
        public void run() {
            for (int i = 0; !ending; i++) {
                String key = "flow-" + i;
                try {
                    Message message = new Message(topic, null, key,
                        key.getBytes(StandardCharsets.UTF_8));
                    sendTo(producer, message, i % queues);
                    acknowledged.add(key);
                } catch (Exception error) {         // a broker that is away promised nothing
                    System.err.println(key + ": " + error);
                }
                try {
                    Thread.sleep(intervalMs);
                } catch (InterruptedException error) {
                    return;
                }
            }
        }

        /** The keys that the broker acknowledged. */
        List<Object> end() throws InterruptedException {
            ending = true;
            join();
            return acknowledged;
        }
    }
}
