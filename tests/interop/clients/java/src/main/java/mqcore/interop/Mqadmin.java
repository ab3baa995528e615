package mqcore.interop;

import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Many mqadmin commands in one JVM: each line of the input is a JSON array of words, each line of
 * the output what the command printed. Beside `mqadmin WORDS...` there are members for it to look
 * at: `consumer GROUP TOPIC [SQL]`, `producer GROUP [traced]`, `send GROUP TOPIC QUEUE KEY BODY`,
 * `commit GROUP`, `stop GROUP`. `account JSON`: see Accounts.
 */
final class Mqadmin {
    private final String namesrv;
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();

    private Mqadmin(String namesrv) {
        this.namesrv = namesrv;
    }

    static int run(Options options) throws Exception {
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        Mqadmin mqadmin = new Mqadmin(options.text("namesrv"));
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream text = new ByteArrayOutputStream();
            PrintStream sink = new PrintStream(text, true, StandardCharsets.UTF_8);
            System.setOut(sink);
            System.setErr(sink);
            long begin = System.currentTimeMillis();
            try {
                mqadmin.execute(JSON.parseArray(line, String.class), sink);
            } catch (Exception error) {
                error.printStackTrace(sink);
            } finally {
                System.setOut(answers);
                System.setErr(errors);
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("text", text.toString(StandardCharsets.UTF_8));
            answer.put("ms", System.currentTimeMillis() - begin);
            answers.println(JSON.toJSONString(answer));
        }
        return 0;
    }

    private void execute(List<String> words, PrintStream out) throws Exception {
        switch (words.get(0)) {
            case "mqadmin":
                admin(words.subList(2, words.size()), Long.parseLong(words.get(1)));
                break;
            case "consumer":
                consumers.put(words.get(1), consumer(words.get(1), words.get(2), words.size() > 3
                    ? MessageSelector.bySql(words.get(3)) : MessageSelector.byTag("*")));
                break;
            case "producer":
                producers.put(words.get(1), producer(words.get(1), words.size() > 2));
                break;
            case "send":
                out.print(JSON.toJSONString(send(words)));
                break;
            case "commit":
                consumers.get(words.get(1)).getDefaultMQPushConsumerImpl().persistConsumerOffset();
                break;
            case "stop":
                stop(words.get(1));
                break;
            case "account":
                out.print(JSON.toJSONString(Accounts.run(JSON.parseObject(words.get(1)))));
                break;
            default:
                throw new IllegalArgumentException("unknown: " + words.get(0));
        }
    }

    /** One command; those that go on for ever are interrupted after `limitMs`. */
    private static void admin(List<String> words, long limitMs) throws Exception {
        Field commands = MQAdminStartup.class.getDeclaredField("subCommandList");
        commands.setAccessible(true);
        ((List<?>) commands.get(null)).clear();       // some keep clients that they have shut down
        Thread thread = new Thread(
            () -> MQAdminStartup.main0(words.toArray(new String[0]), null), "mqadmin");
        thread.start();
        thread.join(limitMs);
        if (thread.isAlive()) {
            thread.interrupt();
            thread.join(5_000);
        }
        if (thread.isAlive()) {
            System.out.println("STILL RUNNING: " + Arrays.toString(thread.getStackTrace()));
        }
    }

    private DefaultMQPushConsumer consumer(String group, String topic, MessageSelector selector)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("member-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        return consumer;
    }

    private DefaultMQProducer producer(String group, boolean traced) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, traced);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("member-" + group);
        producer.start();
        return producer;
    }

    private Map<String, Object> send(List<String> words) throws Exception {
        DefaultMQProducer producer = producers.get(words.get(1));
        Message message = new Message(words.get(2), "TagA", words.get(4),
            words.get(5).getBytes(StandardCharsets.UTF_8));
        int queueId = Integer.parseInt(words.get(3));
        SendResult result = producer.send(message, (queues, sent, wanted) -> {
            for (MessageQueue queue : queues) {
                if (queue.getQueueId() == (Integer) wanted) {
                    return queue;
                }
            }
            throw new IllegalArgumentException("no queue " + wanted);
        }, queueId);
        Map<String, Object> sent = new LinkedHashMap<>();
        sent.put("key", result.getMsgId());
        sent.put("id", result.getOffsetMsgId());
        sent.put("offset", result.getQueueOffset());
        return sent;
    }

    private void stop(String group) {
        DefaultMQPushConsumer consumer = consumers.remove(group);
        if (consumer != null) {
            consumer.shutdown();
        }
        DefaultMQProducer producer = producers.remove(group);
        if (producer != null) {
            producer.shutdown();
        }
    }
}
