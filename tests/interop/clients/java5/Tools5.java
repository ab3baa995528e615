import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.monitor.DeleteMsgsEvent;
import org.apache.rocketmq.tools.monitor.FailedMsgs;
import org.apache.rocketmq.tools.monitor.MonitorConfig;
import org.apache.rocketmq.tools.monitor.MonitorListener;
import org.apache.rocketmq.tools.monitor.MonitorService;
import org.apache.rocketmq.tools.monitor.UndoneMsgs;

/**
 * mqadmin and the lite pull consumer of RocketMQ 5 in one JVM, run from this source: each line of the
 * input is a JSON array of words, each line of the output what came of it. `admin WORDS...` is a
 * command of mqadmin; `litepull GROUP TOPIC COUNT` subscribes and polls until it has so many messages;
 * `monitor` is one round of startMonitoring, and what it reports.
 */
public final class Tools5 {
    private static final long POLL_LIMIT_MS = 30_000;

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        PrintStream answers = System.out;
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream text = new ByteArrayOutputStream();
            PrintStream sink = new PrintStream(text, true, StandardCharsets.UTF_8);
            System.setOut(sink);
            System.setErr(sink);
            try {
                execute(JSON.parseArray(line, String.class), namesrv, sink);
            } catch (Exception error) {
                error.printStackTrace(sink);
            } finally {
                System.setOut(answers);
            }
            answers.println(JSON.toJSONString(
                Collections.singletonMap("text", text.toString(StandardCharsets.UTF_8))));
        }
        System.exit(0);
    }

    private static void execute(List<String> words, String namesrv, PrintStream out)
        throws Exception {
        if (words.get(0).equals("admin")) {
            MQAdminStartup.main0(words.subList(1, words.size()).toArray(new String[0]), null);
        } else if (words.get(0).equals("monitor")) {
            out.println(JSON.toJSONString(monitor(namesrv)));
        } else {
            out.println(JSON.toJSONString(litePull(
                namesrv, words.get(1), words.get(2), Integer.parseInt(words.get(3)))));
        }
    }

    private static List<String> monitor(String namesrv) throws Exception {
        List<String> reports = Collections.synchronizedList(new ArrayList<>());
        MonitorConfig config = new MonitorConfig();
        config.setNamesrvAddr(namesrv);
        MonitorService service = new MonitorService(config, new MonitorListener() {
            @Override
            public void beginRound() {
                reports.add("begin");
            }

            @Override
            public void reportUndoneMsgs(UndoneMsgs undone) {
                reports.add("undone " + undone.getConsumerGroup() + " " + undone.getTopic() + " "
                    + undone.getUndoneMsgsTotal() + " " + undone.getUndoneMsgsSingleMQ());
            }

            @Override
            public void reportFailedMsgs(FailedMsgs failed) {
                reports.add("failed " + failed.getConsumerGroup());
            }

            @Override
            public void reportDeleteMsgsEvent(DeleteMsgsEvent event) {
                reports.add("deleted");
            }

            @Override
            public void reportConsumerRunningInfo(TreeMap<String, ConsumerRunningInfo> found) {
                found.forEach((client, info) -> reports.add("running " + client + " "
                    + info.getSubscriptionSet().iterator().next().getTopic()));
            }

            @Override
            public void endRound() {
                reports.add("end");
            }
        }, null);
        service.start();
        try {
            service.doMonitorWork();
        } finally {
            service.shutdown();
        }
        return reports;
    }

    private static List<String> litePull(String namesrv, String group, String topic, int count)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        List<String> bodies = new ArrayList<>();
        try {
            long end = System.currentTimeMillis() + POLL_LIMIT_MS;
            while (bodies.size() < count && System.currentTimeMillis() < end) {
                for (MessageExt message : consumer.poll(1000)) {
                    bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
                }
            }
            consumer.commit();
        } finally {
            consumer.shutdown();
        }
        return bodies;
    }
}
