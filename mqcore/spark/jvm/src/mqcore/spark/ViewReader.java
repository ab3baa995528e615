package mqcore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads a range of a queue that brokers let no client pull from: its entries, then each record by
 * its place.
 *
 * Brokers keep the queue of op records without settings of its topic, and answer pulls that there
 * is no such topic. It is on every broker that has half messages.
 */
final class ViewReader extends Pieces {
  private static final int QUERY_CONSUME_QUEUE = 321;
  private static final int VIEW = 33;
  private static final int ENTRIES_AT_ONCE = 512;
  private static final byte[] NO_BODY = {};

  private long at;
  private Link link;

  ViewReader(Asked asked) {
    super(asked);
    at = asked.range().begin();
  }

  @Override
  Object next() throws IOException {
    long end = asked.range().end();
    if (at >= end) {
      if (link != null) {
        Link.keep(link);
        link = null;
      }
      return null;
    }
    long since = System.nanoTime();
    while (true) {                                  // while connections fail, up to the time-out
      try {
        if (link == null) {
          link = Link.open(asked.locate().address(), asked.client());
        }
        return piece(at, Math.min(at + ENTRIES_AT_ONCE, end));
      } catch (Refused error) {
        throw error;
      } catch (IOException error) {
        close();
        pause(error, (System.nanoTime() - since) / 1_000_000);
      }
    }
  }

  @Override
  public void close() {
    if (link != null) {
      link.close();
      link = null;
    }
  }

  /** An answer that another try would get again. */
  private static final class Refused extends IOException {
    Refused(String message) {
      super(message);
    }
  }

  private Object piece(long begin, long end) throws IOException {
    Answer answer = link.call(QUERY_CONSUME_QUEUE, Cluster.fields(
        "topic", asked.range().queue().topic(),
        "queueId", Integer.toString(asked.range().queue().id()), "index", Long.toString(begin),
        "count", Long.toString(end - begin), "consumerGroup", ""), NO_BODY,
        asked.timeoutMillis());
    pulls++;
    if (answer.code != Answer.SUCCESS) {
      throw new Refused(answer.shown(link.address));
    }
    JsonNode said = Cluster.MAPPER.readTree(answer.body);
    List<Long> places = new ArrayList<>();
    said.path("queueData").forEach(entry -> places.add(entry.path("physicOffset").asLong()));
    if (places.isEmpty()) {
      long first = said.path("minQueueIndex").asLong();
      return missing(begin < first && first < end ? first : end, "they are not there");
    }
    return found(views(places), begin, end);
  }

  private Object found(Answer[] answers, long begin, long end) throws IOException {
    int gone = 0;
    while (gone < answers.length && answers[gone].code != Answer.SUCCESS) {
      gone++;
    }
    if (gone > 0) {
      return missing(begin + gone, "retention has deleted them");
    }
    ByteArrayOutputStream records = new ByteArrayOutputStream();
    for (int index = 0; index < answers.length && answers[index].code == Answer.SUCCESS; index++) {
      records.writeBytes(answers[index].body);
    }
    bytes += records.size();
    Records.Look look;
    try {
      look = Records.look(records.toByteArray(), begin, end, true);
    } catch (IOException error) {
      throw new Refused("records of " + asked.range().queue().shown() + ": "
          + error.getMessage());
    }
    if (look.next() == begin) {
      return missing(look.missing() > begin ? Math.min(look.missing(), end) : end,
          "other records are there");
    }
    at = look.next();
    return look.page();
  }

  private Missing missing(long end, String why) {
    Missing found = new Missing(at, end, why);
    at = end;
    return found;
  }

  /** The answers in the order of the places, with some requests on their way at a time. */
  private Answer[] views(List<Long> places) throws IOException {
    Answer[] found = new Answer[places.size()];
    Map<Integer, Integer> waiting = new HashMap<>();
    int sent = 0;
    for (int got = 0; got < found.length;) {
      while (sent < found.length && waiting.size() < asked.inFlight()) {
        waiting.put(link.send(VIEW, Cluster.fields("offset", Long.toString(places.get(sent)))),
            sent);
        sent++;
        pulls++;
      }
      Answer answer = link.answer(asked.timeoutMillis());
      Integer index = waiting.remove(answer.opaque);
      if (index != null) {
        found[index] = answer;
        got++;
      }
    }
    return found;
  }
}
