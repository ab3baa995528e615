package mqcore.spark;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The ends of all queues of a stream.
 *
 * A queue that cannot be asked keeps its last known end, and others continue; when that lasts
 * longer than the option `timeout`, it is an error, or a line in the log without `failOnDataLoss`.
 */
final class Ends {
  private static final long PAUSE_MILLIS = 200;
  private static final long AGAIN_NANOS = 2_000_000_000L;   // then a broker is asked again

  private record Away(long due, String why) {
  }

  private final TopicRead read;
  private final Cluster cluster;
  private TreeMap<Queue, Long> known = new TreeMap<>();
  private long asked;
  private boolean wasAsked;
  private long failing;                                     // since when; 0: it does not fail
  private final Map<String, Away> away = new HashMap<>();

  Ends(TopicRead read) {
    this.read = read;
    cluster = new Cluster(read.client);
  }

  /** The ends that were found last. */
  synchronized TreeMap<Queue, Long> known() {
    return known;
  }

  /** The ends, at most `pollInterval` old. */
  synchronized TreeMap<Queue, Long> latest() {
    long age = (System.nanoTime() - asked) / 1_000_000;
    if (!wasAsked || age >= read.settings.number("pollInterval")) {
      ask();
      asked = System.nanoTime();
      wasAsked = true;
    }
    return known;
  }

  /** The first offsets of queues that are new; none while their broker does not say. */
  synchronized TreeMap<Queue, Long> begins(List<Queue> queues) {
    try {
      return queues.isEmpty() ? new TreeMap<>() : cluster.begins(queues);
    } catch (IOException error) {
      TopicRead.LOG.info("{} new queues wait: {}", queues.size(), error.getMessage());
      return new TreeMap<>();
    }
  }

  private void ask() {
    while (true) {
      String trouble;
      try {
        trouble = askCluster();
      } catch (IOException error) {
        trouble = error.getMessage();
      }
      if (trouble == null) {
        failing = 0;
        return;
      }
      long now = System.nanoTime();
      failing = failing == 0 ? now : failing;
      if ((now - failing) / 1_000_000 >= read.settings.number("timeout")) {
        if (read.fails() || known.isEmpty()) {
          throw new SourceException("reading " + read.subject + ": " + trouble);
        }
        TopicRead.LOG.warn("{}; the stream waits", trouble);
        return;
      }
      if (!known.isEmpty()) {
        return;
      }
      pause();
    }
  }

  private void pause() {
    try {
      Thread.sleep(PAUSE_MILLIS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new SourceException("reading " + read.subject + ": the stream was stopped", error);
    }
  }

  /** Asks for all; what is wrong, in words. */
  private String askCluster() throws IOException {
    Subject.Found found = read.subject.queues(cluster);
    long now = System.nanoTime();
    away.values().removeIf(one -> now - one.due >= 0);
    Cluster.Known ends = cluster.knownEnds(found.queues().stream()
        .filter(queue -> !away.containsKey(queue.broker())).toList());
    ends.away().forEach(
        (broker, why) -> away.put(broker, new Away(System.nanoTime() + AGAIN_NANOS, why)));
    if (!known.isEmpty() || away.isEmpty()) {
      TreeMap<Queue, Long> both = new TreeMap<>(known);
      both.putAll(ends.offsets());
      known = both;
    }
    if (!found.away().isEmpty()) {
      return "topic " + found.away().get(0) + " has no route (any more): no name server of"
          + " nameServer knows it";
    }
    return away.isEmpty() ? null : away.entrySet().stream()
        .map(one -> "broker " + one.getKey() + ": " + one.getValue().why).findFirst().get();
  }
}
