package mqcore.interop;

import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** `produce`, `consume`, `create-topic`, `query`, ...: see tests/interop/runner.py. */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 0) {
            throw new IllegalArgumentException("expected a command");
        }
        System.exit(run(args));                 // client threads may linger: end them
    }

    static int run(String[] args) throws Exception {
        String command = args[0];
        Options options = new Options(args, 1);
        switch (command) {
            case "desk":
                return Desk.run();
            case "produce":
                Produce.run(options);
                return 0;
            case "consume":
                return Consume.run(options);
            case "create-topic":
                createTopic(options);
                return 0;
            case "query":
                query(options);
                return 0;
            case "pull-queue":
                PullQueue.run(options);
                return 0;
            case "request":
                RequestReply.run(options);
                return 0;
            case "members":
                return Members.run(options);
            case "mqadmin":
                return Mqadmin.run(options);
            case "read-store":
                return StoreReader.run(options);
            default:
                throw new IllegalArgumentException("unknown command: " + command);
        }
    }

    private static DefaultMQProducer started(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG-java-admin");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
        return producer;
    }

    /** Code 17 to every master that the route of TBW102 names. */
    private static void createTopic(Options options) throws Exception {
        DefaultMQProducer producer = started(options);
        try {
            for (String topic : options.text("topic").split(",")) {
                producer.createTopic("TBW102", topic, options.number("queues", 4));
            }
        } finally {
            producer.shutdown();
        }
    }

    /** Messages by key (code 12) and, with `--msgid`, one message by its offset id (code 33). */
    private static void query(Options options) throws Exception {
        DefaultMQProducer producer = started(options);
        try (Lines lines = new Lines(options.text("out"))) {
            String topic = options.text("topic");
            if (options.flag("key")) {
                QueryResult found = producer.queryMessage(topic, options.text("key"), 32, 0,
                    Long.MAX_VALUE);
                for (MessageExt message : found.getMessageList()) {
                    lines.write(Lines.describe(message));
                }
            }
            if (options.flag("msgid")) {
                lines.write(Lines.describe(producer.viewMessage(topic, options.text("msgid"))));
            }
        } finally {
            producer.shutdown();
        }
    }
}
