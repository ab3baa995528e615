package mqcore.spark;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Which queues are read: topics by name, by pattern, or queues. */
final class Subject implements Serializable {
  private static final List<String> KINDS =
      List.of("topic", "subscribe", "subscribePattern", "assign");
  /** Brokers refuse pulls of this topic. */
  static final String OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC";

  final List<String> topics = new ArrayList<>();
  private Pattern pattern;
  private List<Queue> assigned = List.of();

  Subject(Settings settings) {
    List<String> found = KINDS.stream().filter(settings::has).toList();
    if (found.size() != 1) {
      throw SourceException.option(Source.NAME + ": expected exactly one of "
          + String.join(", ", KINDS) + ": "
          + (found.isEmpty() ? "none of them" : String.join(" and ", found)) + " is given");
    }
    String kind = found.get(0);
    switch (kind) {
      case "topic" -> topics.add(settings.text(kind));
      case "subscribe" -> topics.addAll(settings.names(kind));
      case "assign" -> {
        assigned = Positions.assigned(settings.text(kind));
        TreeSet<String> names = new TreeSet<>();
        assigned.forEach(queue -> names.add(queue.topic()));
        topics.addAll(names);
      }
      default -> {
        try {
          pattern = Pattern.compile(settings.text(kind));
        } catch (PatternSyntaxException error) {
          throw SourceException.option(kind + " '" + settings.text(kind) + "': "
              + error.getDescription());
        }
      }
    }
    for (String topic : topics) {
      Names.checkTopic(kind, topic);
    }
  }

  static boolean isPulled(String topic) {
    return !topic.equals(OP_TOPIC);
  }

  @Override
  public String toString() {
    return pattern == null ? String.join(", ", topics) : "pattern " + pattern;
  }

  /** The queues there are, and the named topics that are not there. */
  record Found(List<Queue> queues, List<String> away) {
  }

  Found queues(Cluster cluster) throws IOException {
    List<String> names = topics;
    if (pattern != null) {
      names = cluster.topics().stream().filter(name -> pattern.matcher(name).matches())
          .toList();
    }
    TreeSet<Queue> found = new TreeSet<>();
    List<String> away = new ArrayList<>();
    for (String topic : names) {
      List<Queue> queues = cluster.queues(topic);
      if (queues != null) {
        found.addAll(queues);
      } else if (pattern == null) {
        away.add(topic);
      }
    }
    if (!assigned.isEmpty()) {
      for (Queue queue : assigned) {
        if (!found.contains(queue) && !away.contains(queue.topic())) {
          throw SourceException.option("assign: " + queue.shown() + " is not there: there are "
              + Positions.shown(found, queue.topic()));
        }
      }
      found.retainAll(assigned);
    }
    return new Found(new ArrayList<>(found), away);
  }

  /** The queues; throws when a named topic is not there. */
  List<Queue> existing(Cluster cluster) throws IOException {
    Found found = queues(cluster);
    if (!found.away.isEmpty()) {
      throw new SourceException("topic " + found.away.get(0) + " has no route: no name server of"
          + " nameServer knows it; check the name, or make the topic first");
    }
    return found.queues;
  }
}
