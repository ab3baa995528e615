package mqcore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends the messages of a JSON file in their order. `mode` of each says how: sync, async, oneway,
 * batch (neighbours travel together), or a transaction: commit, rollback, throw (an exception in the
 * listener), orphan (unknown, and nobody here knows more), check-commit and check-rollback (unknown,
 * decided when asked), check-late and check-throw (unknown or an exception at the first check too).
 * `answer` is not sent: it waits for the check of a message that another program sent. `hang` waits
 * for the end of the process.
 */
final class Produce {
    private static final long CALLBACK_TIMEOUT_S = 20;
    private static final long ANSWER_MS = 500;

    private final TransactionMQProducer producer;
    private final String topic;
    private final Lines results;
    private final Deciding deciding;

    private Produce(TransactionMQProducer producer, String topic, Lines results,
                    Deciding deciding) {
        this.producer = producer;
        this.topic = topic;
        this.results = results;
        this.deciding = deciding;
    }

    static void run(Options options) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group", "PG-java"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        String text = Files.readString(Path.of(options.text("file")), StandardCharsets.UTF_8);
        Lines results = new Lines(options.text("out"));
        Deciding deciding = new Deciding(results);
        producer.setTransactionListener(deciding);
        producer.start();
        try {
            new Produce(producer, options.text("topic"), results, deciding)
                .sendAll(JSON.parseArray(text));
            if (options.flag("wait-checks-ms")) {       // the broker asks back over this connection
                deciding.await(options.number("wait-checks-ms", 0));
                Thread.sleep(ANSWER_MS);                // the answer is one-way
            }
        } finally {
            producer.shutdown();
            results.close();
        }
    }

    private void sendAll(JSONArray items) throws Exception {
        List<JSONObject> batch = new ArrayList<>();
        for (int i = 0; i < items.size(); i++) {
            JSONObject item = items.getJSONObject(i);
            if (mode(item).equals("batch")) {
                batch.add(item);
                continue;
            }
            flush(batch);
            send(item);
        }
        flush(batch);
    }

    private void flush(List<JSONObject> batch) throws Exception {
        if (batch.isEmpty()) {
            return;
        }
        List<Message> messages = new ArrayList<>();
        for (JSONObject item : batch) {
            messages.add(message(item));
        }
        report("batch of " + batch.size(), producer.send(messages));
        batch.clear();
    }

    private void send(JSONObject item) throws Exception {
        Message message = message(item);
        String id = item.getJSONObject("properties").getString("mid");
        if (Deciding.isTransaction(mode(item))) {
            deciding.expect(id, mode(item));
            report(id, producer.sendMessageInTransaction(message, mode(item)));
            return;
        }
        switch (mode(item)) {
            case "sync":
                if (item.containsKey("shard")) {
                    int shard = item.getIntValue("shard");
                    report(id, producer.send(message,
                        (queues, sent, arg) -> queues.get(shard % queues.size()), null));
                } else if (item.containsKey("shardKey")) {
                    report(id, producer.send(message, new SelectMessageQueueByHash(),
                        item.getString("shardKey")));
                } else {
                    report(id, producer.send(message));
                }
                break;
            case "async":
                report(id, sendAsync(message));
                break;
            case "oneway":
                producer.sendOneway(message);
                break;
            case "answer":
                deciding.expect(id, "check-commit");
                break;
            case "hang":
                new CountDownLatch(1).await();
                break;
            default:
                throw new IllegalArgumentException("unknown mode: " + mode(item));
        }
    }

    private SendResult sendAsync(Message message) throws Exception {
        CountDownLatch answered = new CountDownLatch(1);
        AtomicReference<SendResult> result = new AtomicReference<>();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                result.set(sent);
                answered.countDown();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                answered.countDown();
            }
        });
        if (!answered.await(CALLBACK_TIMEOUT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no callback within " + CALLBACK_TIMEOUT_S + " s");
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return result.get();
    }

    private void report(String id, SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(id + ": " + result);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", id);
        line.put("msgId", result.getMsgId());
        line.put("offsetMsgId", result.getOffsetMsgId());
        line.put("queueId", result.getMessageQueue().getQueueId());
        line.put("offset", result.getQueueOffset());
        if (result instanceof TransactionSendResult) {
            line.put("state", ((TransactionSendResult) result).getLocalTransactionState().name());
        }
        results.write(line);
    }

    private static String mode(JSONObject item) {
        return item.getString("mode");
    }

    private Message message(JSONObject item) {
        byte[] body = Base64.getDecoder().decode(item.getString("body"));
        Message message = new Message(topic, body);
        if (item.getString("tags") != null) {
            message.setTags(item.getString("tags"));
        }
        if (item.getString("keys") != null) {
            message.setKeys(item.getString("keys"));
        }
        JSONObject properties = item.getJSONObject("properties");
        for (String name : properties.keySet()) {
            message.putUserProperty(name, properties.getString(name));
        }
        if (item.getIntValue("delayLevel") > 0) {
            message.setDelayTimeLevel(item.getIntValue("delayLevel"));
        }
        return message;
    }
}
