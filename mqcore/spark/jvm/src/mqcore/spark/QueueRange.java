package mqcore.spark;

import java.io.Serializable;

/** Offsets of one queue: from `begin` on, below `end`; `address` is "" when it is not known. */
record QueueRange(Queue queue, long begin, long end, String address) implements Serializable {
  long size() {
    return end - begin;
  }
}
