package mqcore.spark;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** The part that all connections and requests of a read share; it is sent to executors. */
final class Client implements Serializable {
  static final JsonFactory JSON = new JsonFactory();
  private static final int VERSION = 409;
  private static final int PULL = 11;

  final List<String> servers;
  final String namespace;
  final boolean tls;
  final int connectMillis;
  final int callMillis;
  private final String accessKey;
  private final String secretKey;
  private final String securityToken;

  Client(Settings settings) {
    servers = Names.servers(settings);
    namespace = settings.text("rocketmq.namespace");
    tls = settings.truth("rocketmq.tls");
    connectMillis = (int) Math.min(settings.number("rocketmq.connectTimeout"), Integer.MAX_VALUE);
    callMillis = (int) Math.min(settings.number("rocketmq.callTimeout"), Integer.MAX_VALUE);
    accessKey = settings.text("rocketmq.accessKey");
    secretKey = settings.text("rocketmq.secretKey");
    securityToken = settings.text("rocketmq.securityToken");
  }

  String wrap(String name) {
    return Names.wrap(namespace, name);
  }

  /** Names a kept connection: none is shared between accounts. */
  List<Object> key(String address) {
    return List.of(address, tls, Objects.toString(accessKey), Objects.toString(secretKey));
  }

  /** The frame of a request without a body; signed where there is an account. */
  byte[] frame(int code, int opaque, TreeMap<String, String> fields) {
    TreeMap<String, String> all = accessKey == null ? fields : signed(code, fields);
    ByteArrayOutputStream header = new ByteArrayOutputStream(512);
    try (JsonGenerator json = JSON.createGenerator(header)) {
      json.writeStartObject();
      json.writeNumberField("code", code);
      json.writeObjectFieldStart("extFields");
      for (Map.Entry<String, String> each : all.entrySet()) {
        json.writeStringField(each.getKey(), each.getValue());
      }
      json.writeEndObject();
      json.writeNumberField("flag", 0);
      json.writeStringField("language", "JAVA");
      json.writeNumberField("opaque", opaque);
      json.writeStringField("serializeTypeCurrentRPC", "JSON");
      json.writeNumberField("version", VERSION);
      json.writeEndObject();
    } catch (IOException error) {
      throw new IllegalStateException(error);         // memory takes all
    }
    return ByteBuffer.allocate(8 + header.size()).putInt(4 + header.size()).putInt(header.size())
        .put(header.toByteArray()).array();
  }

  /** The fields with key, token, layout and signature (docs/acl.md). */
  private TreeMap<String, String> signed(int code, TreeMap<String, String> fields) {
    TreeMap<String, String> all = new TreeMap<>(fields);
    all.put("AccessKey", accessKey);
    if (securityToken != null) {
      all.put("SecurityToken", securityToken);
    }
    try {
      if (code != PULL) {
        all.put("#Layout", layout(code, all));
      }
      Mac mac = Mac.getInstance("HmacSHA1");
      mac.init(new SecretKeySpec(secretKey.getBytes(StandardCharsets.UTF_8), "HmacSHA1"));
      mac.update(String.join("", all.values()).getBytes(StandardCharsets.UTF_8));
      all.put("Signature", Base64.getEncoder().encodeToString(mac.doFinal()));
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException(error);         // every Java has both
    }
    return all;
  }

  /** A digest of the code, and of all fields' names and lengths. */
  private static String layout(int code, TreeMap<String, String> fields)
      throws GeneralSecurityException {
    StringBuilder text = new StringBuilder("[").append(code).append(",[");
    String before = "";
    for (Map.Entry<String, String> each : fields.entrySet()) {
      text.append(before).append("[\"").append(each.getKey()).append("\",")
          .append(each.getValue().getBytes(StandardCharsets.UTF_8).length).append(']');
      before = ",";
    }
    byte[] digest = MessageDigest.getInstance("SHA-256")
        .digest(text.append("],0]").toString().getBytes(StandardCharsets.US_ASCII));
    StringBuilder hex = new StringBuilder();
    for (int index = 0; index < 16; index++) {
      hex.append(String.format("%02x", digest[index]));
    }
    return hex.toString();
  }
}
