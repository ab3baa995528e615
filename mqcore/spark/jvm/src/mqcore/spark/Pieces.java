package mqcore.spark;

import java.io.Closeable;
import java.io.IOException;

/**
 * Reads a range of a queue's offsets, in order.
 *
 * Invariant: pages and `Missing` cover the range without gap or overlap.
 */
abstract class Pieces implements Closeable {
  static final long PAUSE_MILLIS = 50;
  private static final long PAUSE_MAX_MILLIS = 1_000;

  /** Offsets that are not there: from `begin` on, below `end`; `why` in words. */
  record Missing(long begin, long end, String why) {
  }

  /** Where the queue's broker is: what the driver said, then what name servers say. */
  interface Locate {
    String address() throws IOException;
  }

  /**
   * All that a range's reader needs: `group` as brokers know it, `inFlight` the requests that are
   * on their way at a time.
   */
  record Asked(Client client, Locate locate, QueueRange range, String subscription,
      String expressionType, String group, int inFlight, long timeoutMillis) {
  }

  final Asked asked;
  long pulls;
  long retries;
  long bytes;

  Pieces(Asked asked) {
    this.asked = asked;
  }

  /** The next Records.Page or Missing; null at the end. */
  abstract Object next() throws IOException;

  @Override
  public abstract void close();

  /** Before another try, that many milliseconds after the first; throws the error in the end. */
  void pause(IOException error, long failingMillis) throws IOException {
    if (failingMillis >= asked.timeoutMillis) {
      throw error;
    }
    retries++;
    sleep(Math.min(Math.max(failingMillis, PAUSE_MILLIS), PAUSE_MAX_MILLIS));
  }

  static void sleep(long millis) throws IOException {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IOException("the task was given up", error);
    }
  }
}
