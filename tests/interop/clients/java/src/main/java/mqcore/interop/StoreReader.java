package mqcore.interop;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store directory with the stock store classes, as a broker start does, and writes every
 * message that its consume queues reach. Opening changes files: give it a copy.
 */
final class StoreReader {
    private static final int BATCH = 32;

    private StoreReader() {
    }

    static int run(Options options) throws Exception {
        Path root = Path.of(options.text("store"));
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setBrokerRole(BrokerRole.ASYNC_MASTER);
        config.setHaListenPort(options.number("ha-port", 0));
        config.setMessageDelayLevel(options.text("delay-levels", config.getMessageDelayLevel()));
        config.setMappedFileSizeCommitLog(
            options.number("segment-size", config.getMappedFileSizeCommitLog()));
        config.setMappedFileSizeConsumeQueue(
            options.number("queue-file-size", config.getMappedFileSizeConsumeQueue()));
        config.setMaxHashSlotNum(options.number("index-slots", config.getMaxHashSlotNum()));
        config.setMaxIndexNum(options.number("index-entries", config.getMaxIndexNum()));
        config.setMaxMsgsNumBatch(1024);
        DefaultMessageStore store = new DefaultMessageStore(config,
            new BrokerStatsManager("reader", true), (topic, queueId, maxOffset, tags, time, bits,
                properties) -> { }, new BrokerConfig());
        if (!store.load()) {
            throw new IllegalStateException("the stock store refused to load " + root);
        }
        store.start();
        try (Lines lines = new Lines(options.text("out"))) {
            ConcurrentMap<String, ConcurrentMap<Integer, ConsumeQueue>> table =
                store.getConsumeQueueTable();
            for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueue>> topic : table.entrySet()) {
                for (int queueId : topic.getValue().keySet()) {
                    readQueue(store, topic.getKey(), queueId, lines);
                }
            }
            for (String query : options.text("find", "").split(";")) {
                if (!query.isEmpty()) {
                    find(store, query.split("=", 2), lines);
                }
            }
        } finally {
            store.shutdown();
        }
        return 0;
    }

    private static void readQueue(DefaultMessageStore store, String topic, int queueId, Lines lines) {
        long offset = store.getMinOffsetInQueue(topic, queueId);
        long end = store.getMaxOffsetInQueue(topic, queueId);
        while (offset < end) {
            GetMessageResult found = store.getMessage("reader", topic, queueId, offset, BATCH, null);
            if (found == null || found.getMessageCount() == 0) {
                throw new IllegalStateException(topic + "/" + queueId + " has no message at "
                    + offset + " of " + end + ": " + (found == null ? null : found.getStatus()));
            }
            for (SelectMappedBufferResult record : found.getMessageMapedList()) {
                MessageExt message = MessageDecoder.decode(record.getByteBuffer(), true, true);
                Map<String, Object> line = Lines.describe(message);
                line.put("queueTopic", topic);
                lines.write(line);
            }
            offset = found.getNextBeginOffset();
            found.release();
        }
    }

    /** Looks a key up in the index files: one line for each hit, marked with the key. */
    private static void find(DefaultMessageStore store, String[] topicAndKey, Lines lines) {
        QueryMessageResult found = store.queryMessage(topicAndKey[0], topicAndKey[1], BATCH, 0, Long.MAX_VALUE);
        for (ByteBuffer record : found.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(record, true, true);
            Map<String, Object> line = Lines.describe(message);
            line.put("foundByKey", topicAndKey[1]);
            lines.write(line);
        }
        found.release();
    }
}
