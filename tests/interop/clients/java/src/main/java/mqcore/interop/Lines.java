package mqcore.interop;

import com.alibaba.fastjson.JSON;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/** A file of JSON lines, flushed after each, so that a killed run still shows what it saw. */
final class Lines implements AutoCloseable {
    private final BufferedWriter writer;

    Lines(String path) throws IOException {
        writer = Files.newBufferedWriter(Path.of(path), StandardCharsets.UTF_8);
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", message.getTopic());
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("properties", new TreeMap<>(message.getProperties()));
        line.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        line.put("queueId", message.getQueueId());
        line.put("offset", message.getQueueOffset());
        line.put("msgId", message.getMsgId());
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("sysFlag", message.getSysFlag());
        line.put("storeSize", message.getStoreSize());
        line.put("physicalOffset", message.getCommitLogOffset());
        line.put("bornAt", message.getBornTimestamp());
        line.put("storedAt", message.getStoreTimestamp());
        line.put("seenAt", System.currentTimeMillis());
        return line;
    }

    synchronized void write(Map<String, Object> line) {
        try {
            writer.write(JSON.toJSONString(line));
            writer.newLine();
            writer.flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public synchronized void close() throws IOException {
        writer.close();
    }
}
