package mqcore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * What one account may do at one broker: `{namesrv, broker, key, secret, deeds: [{do, topic, group,
 * body}]}`, without `key` unsigned. For each deed "ok", or code and remark of its refusal. Deeds: sync,
 * async, oneway, batch (of two), delayed, transaction, pull, push (until a message comes).
 */
final class Accounts {
    private static final int LIMIT_MS = 30_000;
    private static final int REFUSED_ASYNC_RETRIES = 0;
    private static int clients;

    private final JSONObject account;
    private TransactionMQProducer producer;

    private Accounts(JSONObject account) {
        this.account = account;
    }

    static List<Object> run(JSONObject account) throws Exception {
        Accounts one = new Accounts(account);
        List<Object> outcomes = new ArrayList<>();
        try {
            JSONArray deeds = account.getJSONArray("deeds");
            for (int i = 0; i < deeds.size(); i++) {
                outcomes.add(one.outcome(deeds.getJSONObject(i)));
            }
        } finally {
            if (one.producer != null) {
                one.producer.shutdown();
            }
        }
        return outcomes;
    }

    private Object outcome(JSONObject deed) {
        try {
            run(deed.getString("do"), deed);
            return "ok";
        } catch (Exception error) {
            Throwable found = error;
            while (!(found instanceof MQBrokerException) && found.getCause() != null) {
                found = found.getCause();
            }
            Map<String, Object> refusal = new LinkedHashMap<>();
            refusal.put("code", found instanceof MQBrokerException
                ? ((MQBrokerException) found).getResponseCode() : null);
            refusal.put("remark", found instanceof MQBrokerException
                ? ((MQBrokerException) found).getErrorMessage() : found.toString());
            return refusal;
        }
    }

    private void run(String kind, JSONObject deed) throws Exception {
        Message message = new Message(deed.getString("topic"), null, deed.getString("body"),
            deed.getString("body").getBytes(StandardCharsets.UTF_8));
        switch (kind) {
            case "sync":
                producer().send(message);
                break;
            case "async":
                sendAsync(message);
                break;
            case "oneway":
                producer().sendOneway(message);
                break;
            case "batch":
                producer().send(Arrays.asList(message, new Message(deed.getString("topic"), null,
                    deed.getString("body") + "-2", message.getBody())));
                break;
            case "delayed":
                message.setDelayTimeLevel(1);
                producer().send(message);
                break;
            case "transaction":
                producer().sendMessageInTransaction(message, null);
                break;
            case "pull":
                pull(deed);
                break;
            case "push":
                push(deed);
                break;
            default:
                throw new IllegalArgumentException("unknown: " + kind);
        }
    }

    /** Who asks is set for a client of the process: each has a name of its own. */
    private String name() {
        return "account-" + ++clients;
    }

    private RPCHook hook() {
        return account.containsKey("key") ? new AclClientRPCHook(new SessionCredentials(
            account.getString("key"), account.getString("secret"))) : null;
    }

    private TransactionMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new TransactionMQProducer("accounts", hook());
            producer.setNamesrvAddr(account.getString("namesrv"));
            producer.setInstanceName(name());
            producer.setSendMsgTimeout(LIMIT_MS);
            producer.setRetryTimesWhenSendAsyncFailed(REFUSED_ASYNC_RETRIES);
            producer.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return LocalTransactionState.UNKNOW;
                }
            });
            producer.start();
        }
        return producer;
    }

    private void sendAsync(Message message) throws Exception {
        CountDownLatch answered = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        producer().send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                answered.countDown();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                answered.countDown();
            }
        });
        if (!answered.await(LIMIT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("no callback");
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }

    private void pull(JSONObject deed) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(deed.getString("group"), hook());
        consumer.setNamesrvAddr(account.getString("namesrv"));
        consumer.setInstanceName(name());
        consumer.start();
        try {
            consumer.pull(new MessageQueue(deed.getString("topic"), account.getString("broker"), 0),
                "*", 0, 32);
        } finally {
            consumer.shutdown();
        }
    }

    private void push(JSONObject deed) throws Exception {
        CountDownLatch came = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(deed.getString("group"), hook(),
            new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(account.getString("namesrv"));
        consumer.setInstanceName(name());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(deed.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            came.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!came.await(LIMIT_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("no message");
            }
        } finally {
            consumer.shutdown();
        }
    }
}
