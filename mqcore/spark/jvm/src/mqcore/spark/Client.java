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
  final TreeMap<String, String> tlsOptions;
  final int connectMillis;
  final int callMillis;
  private final String accessKey;
  private final String secretKey;
  private final String securityToken;

  Client(Settings settings) {
    Url url = Url.parse(settings.has("nameServer") ? settings.text("nameServer")
        : System.getenv().getOrDefault("NAMESRV_ADDR", ""));
    servers = url.servers();
    namespace = url.namespace().isEmpty() ? settings.text("rocketmq.namespace") : url.namespace();
    Names.checkNamespace(namespace);
    tlsOptions = url.tls();
    tls = tlsOptions.isEmpty() ? settings.truth("rocketmq.tls")
        : !"off".equals(tlsOptions.get("tls"));
    connectMillis = (int) Math.min(settings.number("rocketmq.connectTimeout"), Integer.MAX_VALUE);
    callMillis = (int) Math.min(settings.number("rocketmq.callTimeout"), Integer.MAX_VALUE);
    if (settings.has("rocketmq.accessKey") != settings.has("rocketmq.secretKey")) {
      throw SourceException.option(
          "rocketmq.accessKey and rocketmq.secretKey: expected both, or none");
    }
    boolean isUrls = url.accessKey() != null;
    accessKey = isUrls ? url.accessKey() : settings.text("rocketmq.accessKey");
    secretKey = isUrls ? url.secretKey() : settings.text("rocketmq.secretKey");
    securityToken = isUrls ? null : settings.text("rocketmq.securityToken");
    if (accessKey != null && (accessKey.isEmpty() || secretKey.isEmpty())) {
      throw SourceException.option("nameServer: expected key:secret before the @ of a URL");
    }
  }

  String wrap(String name) {
    return Names.wrap(namespace, name);
  }

  /** Names a kept connection: none is shared between accounts. */
  List<Object> key(String address) {
    return List.of(address, tls, tlsOptions, Objects.toString(accessKey),
        Objects.toString(secretKey), Objects.toString(securityToken));
  }

  /** The frame of a request; signed where there is an account. */
  byte[] frame(int code, int opaque, TreeMap<String, String> fields, byte[] body) {
    TreeMap<String, String> all = accessKey == null ? fields : signed(code, fields, body);
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
    return ByteBuffer.allocate(8 + header.size() + body.length)
        .putInt(4 + header.size() + body.length).putInt(header.size())
        .put(header.toByteArray()).put(body).array();
  }

  /** The fields with key, token, layout and signature (docs/acl.md). */
  private TreeMap<String, String> signed(int code, TreeMap<String, String> fields,
      byte[] body) {
    TreeMap<String, String> all = new TreeMap<>(fields);
    all.put("AccessKey", accessKey);
    if (securityToken != null) {
      all.put("SecurityToken", securityToken);
    }
    try {
      if (code != PULL) {
        all.put("#Layout", layout(code, all, body.length));
      }
      Mac mac = Mac.getInstance("HmacSHA1");
      mac.init(new SecretKeySpec(secretKey.getBytes(StandardCharsets.UTF_8), "HmacSHA1"));
      mac.update(String.join("", all.values()).getBytes(StandardCharsets.UTF_8));
      mac.update(body);
      all.put("Signature", Base64.getEncoder().encodeToString(mac.doFinal()));
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException(error);         // every Java has both
    }
    return all;
  }

  /** A digest of the code, and of all fields' names and lengths. */
  private static String layout(int code, TreeMap<String, String> fields, int bodySize)
      throws GeneralSecurityException {
    StringBuilder text = new StringBuilder("[").append(code).append(",[");
    String before = "";
    for (Map.Entry<String, String> each : fields.entrySet()) {
      text.append(before).append("[\"").append(each.getKey()).append("\",")
          .append(each.getValue().getBytes(StandardCharsets.UTF_8).length).append(']');
      before = ",";
    }
    byte[] digest = MessageDigest.getInstance("SHA-256")
        .digest(text.append("],").append(bodySize).append(']').toString().getBytes(StandardCharsets.US_ASCII));
    StringBuilder hex = new StringBuilder();
    for (int index = 0; index < 16; index++) {
      hex.append(String.format("%02x", digest[index]));
    }
    return hex.toString();
  }
}
