import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** The Java client's process of perf.client_compare; arguments and output as of python_client.py. */
final class JavaClient {
    private static final int WINDOW = 2_000;
    private static final int TURN = 100;
    private static final long WARM_UP_NS = TimeUnit.SECONDS.toNanos(5);     // until it is compiled
    private static final long WAIT_S = 120;
    private static final byte[] BODY = new byte[128];

    private interface Turn {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        String role = arguments[1];
        String topic = arguments[3];
        if (role.equals("push")) {
            push(arguments[2], topic, Long.parseLong(arguments[5]));
        } else {
            send(role, arguments[2], topic, Double.parseDouble(arguments[4]));
        }
        System.exit(0);
    }

    private static double cpu() {
        OperatingSystemMXBean bean =
                (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return bean.getProcessCpuTime() / 1e9;
    }

    private static void print(long count, double seconds, double cpu) {
        System.out.printf("{\"count\": %d, \"seconds\": %.6f, \"cpu\": %.6f}%n",
                count, seconds, cpu);
    }

    private static void send(String role, String namesrv, String topic, double seconds)
            throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("compare");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        Semaphore room = new Semaphore(WINDOW);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                System.err.println(error);
                room.release();
            }
        };
        int perTurn = role.equals("send") ? 1 : TURN;
        Turn turn = () -> {
            for (int i = 0; i < perTurn; i++) {
                Message message = new Message(topic, BODY);
                if (role.equals("send")) {
                    producer.send(message);
                } else if (role.equals("soon")) {
                    room.acquire();
                    producer.send(message, callback);
                } else {
                    producer.sendOneway(message);
                }
            }
        };
        for (long end = System.nanoTime() + WARM_UP_NS; System.nanoTime() < end;) {
            turn.run();
        }
        room.acquire(WINDOW);
        room.release(WINDOW);
        long count = 0;
        double used = cpu();
        long began = System.nanoTime();
        while (System.nanoTime() - began < seconds * 1e9) {
            turn.run();
            count += perTurn;
        }
        room.acquire(WINDOW);
        print(count, (System.nanoTime() - began) / 1e9, cpu() - used);
        producer.shutdown();
    }

    /** Reads all messages twice: the first time until the code is compiled. */
    private static void push(String namesrv, String topic, long count) throws Exception {
        read(namesrv, topic, count);
        double[] figures = read(namesrv, topic, count);
        print(count, figures[0], figures[1]);
    }

    private static double[] read(String namesrv, String topic, long count) throws Exception {
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(topic + "-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(Long.toString(System.nanoTime()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicLong left = new AtomicLong(count);
        AtomicLong began = new AtomicLong();
        double[] figures = {0, 0};
        CountDownLatch done = new CountDownLatch(1);
        double[] used = {0};
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (began.compareAndSet(0, System.nanoTime())) {
                used[0] = cpu();
            }
            if (left.addAndGet(-messages.size()) == 0) {
                figures[0] = (System.nanoTime() - began.get()) / 1e9;
                figures[1] = cpu() - used[0];
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left + " of " + count + " messages did not come");
        }
        consumer.shutdown();
        return figures;
    }
}
