package mqcore.spark;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/** An answer of a broker, or of a name server. */
final class Answer {
  static final int SUCCESS = 0;
  static final int SYSTEM_BUSY = 2;
  static final int SERVICE_NOT_AVAILABLE = 14;
  static final int TOPIC_NOT_EXIST = 17;
  static final int PULL_NOT_FOUND = 19;
  static final int PULL_RETRY_IMMEDIATELY = 20;
  static final int PULL_OFFSET_MOVED = 21;
  static final int QUERY_NOT_FOUND = 22;
  static final int FLOW_CONTROL = 215;
  private static final Map<Integer, String> HINTS = Map.of(
      16, " (the account may not do this, or is unknown)");

  int code;
  int opaque;
  int flag;
  String remark = "";
  final TreeMap<String, String> fields = new TreeMap<>();
  byte[] body;

  /** The header in JSON. */
  static Answer read(byte[] bytes, int begin, int length) throws IOException {
    Answer found = new Answer();
    try (JsonParser json = Client.JSON.createParser(bytes, begin, length)) {
      if (json.nextToken() != JsonToken.START_OBJECT) {
        throw new IOException("a header that is no object");
      }
      while (json.nextToken() == JsonToken.FIELD_NAME) {
        String name = json.currentName();
        json.nextToken();
        switch (name) {
          case "code" -> found.code = json.getIntValue();
          case "opaque" -> found.opaque = json.getIntValue();
          case "flag" -> found.flag = json.getIntValue();
          case "remark" -> found.remark = json.getValueAsString("");
          case "extFields" -> found.readFields(json);
          default -> json.skipChildren();
        }
      }
    }
    return found;
  }

  private void readFields(JsonParser json) throws IOException {
    if (json.currentToken() != JsonToken.START_OBJECT) {
      json.skipChildren();
      return;
    }
    while (json.nextToken() == JsonToken.FIELD_NAME) {
      String name = json.currentName();
      json.nextToken();
      String text = json.getValueAsString();
      if (text != null) {
        fields.put(name, text);
      }
      json.skipChildren();
    }
  }

  /** A field that is a number; -1 when it is not there. */
  long number(String name) throws IOException {
    String text = fields.get(name);
    try {
      return text == null || text.isEmpty() ? -1 : Long.parseLong(text);
    } catch (NumberFormatException error) {
      throw new IOException("field " + name + " of an answer: expected a number");
    }
  }

  /** Whether the same question may be answered a moment later. */
  boolean mayPass() {
    return code == SYSTEM_BUSY || code == SERVICE_NOT_AVAILABLE || code == FLOW_CONTROL;
  }

  String shown(String address) {
    String text = remark.lines().findFirst().orElse("");
    return "code " + code + ": " + text + HINTS.getOrDefault(code, "") + " (" + address + ")";
  }
}
