package mqcore.spark;

import java.io.Serializable;
import java.util.Comparator;

/** One queue of a topic on a broker; the topic's name is that of the application. */
record Queue(String topic, String broker, int id) implements Comparable<Queue>, Serializable {
  private static final Comparator<Queue> ORDER = Comparator.comparing(Queue::topic)
      .thenComparing(Queue::broker).thenComparingInt(Queue::id);

  @Override
  public int compareTo(Queue other) {
    return ORDER.compare(this, other);
  }

  /** As errors name a queue. */
  String shown() {
    return "queue " + id + " of topic " + topic + " on " + broker;
  }
}
