package mqcore.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Decides transactions by the modes of their messages (tests/interop/messages.py), and writes a line
 * for each time that the broker asks. A message that this program does not know stays undecided.
 */
final class Deciding implements TransactionListener {
    private final Lines results;
    private final Map<String, String> modes = new LinkedHashMap<>();    // by mid: what is to be asked
    private final Map<String, Integer> asked = new LinkedHashMap<>();   // by mid: how often
    private int open;                                                   // to be decided by a check

    Deciding(Lines results) {
        this.results = results;
    }

    static boolean isTransaction(String mode) {
        return mode.equals("commit") || mode.equals("rollback") || mode.equals("orphan")
            || isChecked(mode);
    }

    private static boolean isChecked(String mode) {
        return mode.startsWith("check-") || mode.equals("throw");
    }

    /** The broker will ask about the message `mid`, sent by this program or another one. */
    synchronized void expect(String mid, String mode) {
        if (isChecked(mode)) {
            modes.put(mid, mode);
            open++;
        }
    }

    synchronized void await(long timeoutMs) throws InterruptedException {
        long end = System.currentTimeMillis() + timeoutMs;
        while (open > 0) {
            long left = end - System.currentTimeMillis();
            if (left <= 0) {
                throw new IllegalStateException(open + " transactions were not decided");
            }
            wait(left);
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object mode) {
        switch ((String) mode) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "throw":
                throw new IllegalStateException("the local transaction failed");
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    @Override
    public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
        String mid = message.getProperty("mid");
        int times = asked.merge(mid, 1, Integer::sum);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("asked", mid);
        line.put("times", Integer.parseInt(message.getProperty("TRANSACTION_CHECK_TIMES")));
        line.put("topic", message.getTopic());
        line.put("sameTransaction",
            message.getProperty("UNIQ_KEY").equals(message.getTransactionId()));
        results.write(line);
        return answer(modes.getOrDefault(mid, ""), times);
    }

    private LocalTransactionState answer(String mode, int times) {
        switch (mode) {
            case "check-late":
                if (times == 1) {
                    return LocalTransactionState.UNKNOW;
                }
                break;
            case "check-throw":
                if (times == 1) {
                    throw new IllegalStateException("the check failed");
                }
                break;
            case "":
            case "check-never":
                return LocalTransactionState.UNKNOW;
            default:
                break;
        }
        open--;
        notifyAll();
        return mode.equals("check-rollback") ? LocalTransactionState.ROLLBACK_MESSAGE
            : LocalTransactionState.COMMIT_MESSAGE;
    }
}
