package mqcore.spark;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * Reads a range of a queue's offsets with many pulls on their way at a time.
 *
 * A broker answers with as many messages as it likes. So the range is cut into segments of about
 * what an answer brings; each has one request on its way, and asks again for what an answer left
 * open. Segments are handed out in order.
 *
 * The rules are those of `mqcore.spark.topics.ranges`; tests/spark/test_faulty_brokers.py holds
 * both to them.
 */
final class RangeReader extends Pieces {
  private static final int PULL = 11;
  private static final int PULL_COUNT_MAX = 1_024;
  private static final int FIRST_STEP = 32;         // offsets of a segment, before an answer came
  private static final int FIRST_ANSWERS = 4;       // full ones before larger segments are tried
  private static final int FULL_ANSWERS = 128;      // the same once an answer left something open
  private static final int STEP_MAX = 8_192;
  private static final String REPLAYS = Integer.toString(1 << 30 | 4);    // with a subscription

  private static final class Segment {
    final long begin;
    final long end;
    long at;                                        // the offset to ask for next
    long since;                                     // when it began to bring nothing; 0: it does
    final ArrayDeque<Object> pieces = new ArrayDeque<>();

    Segment(long begin, long end) {
      this.begin = begin;
      this.end = end;
      at = begin;
    }
  }

  private final QueueRange range;
  private final boolean whole;
  private final Map<Integer, Segment> waiting = new HashMap<>();
  private final ArrayDeque<Segment> segments = new ArrayDeque<>();
  private final ArrayDeque<Object> ready = new ArrayDeque<>();
  private Link link;
  private long next;
  private int step = FIRST_STEP;
  private int full;
  private int fullWanted = FIRST_ANSWERS;
  private long progress = System.nanoTime();

  RangeReader(Asked asked) {
    super(asked);
    range = asked.range();
    whole = asked.subscription().equals("*");
    next = range.begin();
  }

  @Override
  Object next() throws IOException {
    while (ready.isEmpty()) {
      fill();
      if (segments.isEmpty()) {
        if (link != null) {
          Link.keep(link);
          link = null;
        }
        return null;
      }
      Segment head = segments.peekFirst();
      while (head.at < head.end) {
        turn();
      }
      segments.pollFirst();
      ready.addAll(head.pieces);
    }
    return ready.pollFirst();
  }

  /** Also when a task is given up: then answers are missing. */
  @Override
  public void close() {
    if (link != null) {
      link.close();
      link = null;
    }
  }

  private void fill() throws IOException {
    while (segments.size() < asked.inFlight() && next < range.end()) {
      Segment segment = new Segment(next, Math.min(next + step, range.end()));
      next = segment.end;
      segments.add(segment);
      if (link != null) {
        try {
          ask(segment);
        } catch (IOException error) {
          broken(error);
        }
      }
    }
  }

  /** Takes one answer; after a failure all that has none is asked for again. */
  private void turn() throws IOException {
    Answer answer;
    try {
      if (link == null) {
        connect();
      }
      answer = link.answer(asked.timeoutMillis());
    } catch (IOException error) {
      broken(error);
      return;
    }
    Segment segment = waiting.remove(answer.opaque);
    if (segment != null) {
      take(segment, answer);
    }
  }

  private void broken(IOException error) throws IOException {
    close();
    pause(error);
  }

  private void connect() throws IOException {
    waiting.clear();
    link = Link.open(asked.locate().address(), asked.client());
    for (Segment segment : segments) {
      if (segment.at < segment.end) {
        ask(segment);
      }
    }
  }

  private void pause(IOException error) throws IOException {
    pause(error, (System.nanoTime() - progress) / 1_000_000);
  }

  private void ask(Segment segment) throws IOException {
    TreeMap<String, String> fields = Cluster.fields(
        "consumerGroup", asked.group(),
        "topic", asked.client().wrap(range.queue().topic()),
        "queueId", Integer.toString(range.queue().id()),
        "queueOffset", Long.toString(segment.at),
        "maxMsgNums", Long.toString(Math.min(segment.end - segment.at, PULL_COUNT_MAX)),
        "sysFlag", REPLAYS, "commitOffset", "0", "suspendTimeoutMillis", "0",
        "subscription", asked.subscription(), "subVersion", "0",
        "expressionType", asked.expressionType(), "bname", range.queue().broker());
    waiting.put(link.send(PULL, fields), segment);
    pulls++;
  }

  // -- answers ------------------------------------------------------------------------------------

  private void take(Segment segment, Answer answer) throws IOException {
    long before = segment.at;
    switch (answer.code) {
      case Answer.SUCCESS -> found(segment, answer);
      case Answer.PULL_NOT_FOUND, Answer.PULL_RETRY_IMMEDIATELY, Answer.PULL_OFFSET_MOVED ->
          nothingFound(segment, answer);
      case Answer.TOPIC_NOT_EXIST ->
          missAll(segment, "its broker has no such topic (any more)");
      default -> {
        IOException error = new IOException(answer.shown(link.address));
        if (!answer.mayPass()) {
          throw error;
        }
        pause(error);
      }
    }
    if (segment.at > before) {
      progress = System.nanoTime();
      segment.since = 0;
    }
    if (segment.at < segment.end) {
      try {
        ask(segment);
      } catch (IOException error) {
        broken(error);
      }
    }
  }

  private void found(Segment segment, Answer answer) throws IOException {
    long begin = segment.at;
    Records.Look look;
    try {
      look = Records.look(answer.body, begin, segment.end, whole);
    } catch (IOException error) {
      throw new IOException("pull from " + range.queue().shown() + ": " + error.getMessage());
    }
    bytes += answer.body.length;
    if (whole && look.next() == begin) {            // what was found may lie behind the segment
      miss(segment, look.missing() >= 0 ? look.missing() : segment.end,
          "they are not there (any more)");
      return;
    }
    long after = whole ? look.next()
        : Math.min(Math.max(look.next(), answer.number("nextBeginOffset")), segment.end);
    if (after == begin) {
      throw new IOException("pull from " + range.queue().shown()
          + ": found messages, and none of offset " + begin);
    }
    if (look.count() > 0) {
      segment.pieces.add(look.page());
    }
    learn(segment, begin, after);
    segment.at = after;
  }

  /** How much an answer brings: the size of the next segments. */
  private void learn(Segment segment, long begin, long after) {
    if (after < segment.end) {
      if (begin == segment.begin) {
        step = (int) Math.max(after - begin, 1);
      }
      full = 0;
      fullWanted = FULL_ANSWERS;
      return;
    }
    full++;
    if (full >= fullWanted || !whole && begin == segment.begin) {
      step = Math.min(2 * step, whole ? PULL_COUNT_MAX : STEP_MAX);
      full = 0;
    }
  }

  private void nothingFound(Segment segment, Answer answer) throws IOException {
    long following = answer.number("nextBeginOffset");
    long first = answer.number("minOffset");
    long end = answer.number("maxOffset");
    boolean moved = answer.code == Answer.PULL_OFFSET_MOVED;
    if (first > segment.at || moved && following > segment.at) {
      miss(segment, Math.max(first, following), "retention has deleted them");
    } else if (end >= 0 && end <= segment.at) {
      if (moved || stays(segment)) {
        missAll(segment, "the queue ends at " + end + ": its topic was made anew, or its broker"
            + " lost its newest messages");
      }
    } else if (following > segment.at) {
      if (whole) {
        miss(segment, following, "the broker passes over them");
      } else {
        long after = Math.min(following, segment.end);
        learn(segment, segment.at, after);
        segment.at = after;
      }
    } else if (stays(segment)) {
      throw new IOException("pull from " + range.queue().shown() + ": the broker gives nothing at "
          + segment.at + ", and says no reason (code " + answer.code + ")");
    }
  }

  /** Whether a segment brings nothing for too long; else it was waited for a moment. */
  private boolean stays(Segment segment) throws IOException {
    long now = System.nanoTime();
    if (segment.since == 0) {
      segment.since = now;
    }
    if ((now - segment.since) / 1_000_000 >= asked.timeoutMillis()) {
      return true;
    }
    sleep(PAUSE_MILLIS);
    return false;
  }

  /** Offsets of a segment, and perhaps of all behind it, are not there. */
  private void miss(Segment segment, long end, String why) {
    long stop = Math.min(Math.max(end, segment.at + 1), segment.end);
    segment.pieces.add(new Missing(segment.at, stop, why));
    segment.at = stop;
  }

  /** Nothing from here on is there: what was not asked for yet is not asked for. */
  private void missAll(Segment segment, String why) {
    miss(segment, segment.end, why);
    if (next < range.end()) {
      Segment rest = new Segment(next, range.end());
      miss(rest, rest.end, why);
      segments.add(rest);
      next = range.end();
    }
  }
}
