package mqcore.spark;

import java.nio.ByteBuffer;

/** `address:port` of a record's host, an IPv6 address in brackets. */
final class Hostname {
  private Hostname() {
  }

  static String of(byte[] host) {
    int port = ByteBuffer.wrap(host).getInt(host.length - 4);
    return host.length == 8 ? v4(host, 0) + ":" + port : "[" + v6(host) + "]:" + port;
  }

  private static String v4(byte[] host, int at) {
    return (host[at] & 255) + "." + (host[at + 1] & 255) + "." + (host[at + 2] & 255) + "."
        + (host[at + 3] & 255);
  }

  /** As inet_ntop writes it: the longest run of zeros is left out. */
  private static String v6(byte[] host) {
    int[] words = new int[8];
    for (int index = 0; index < 8; index++) {
      words[index] = ByteBuffer.wrap(host).getShort(2 * index) & 0xffff;
    }
    int best = 0;
    int length = 1;
    for (int index = 0; index < 8; index++) {
      int end = index;
      while (end < 8 && words[end] == 0) {
        end++;
      }
      if (end - index > length) {
        best = index;
        length = end - index;
      }
    }
    boolean isV4 = length > 1 && best == 0
        && (length == 6 || length == 7 && words[7] != 1 || length == 5 && words[5] == 0xffff);
    StringBuilder text = new StringBuilder();
    for (int index = 0; index < (isV4 ? 6 : 8); index++) {
      if (length > 1 && index >= best && index < best + length) {
        text.append(index == best ? ":" : "");
        continue;
      }
      text.append(index == 0 ? "" : ":").append(Integer.toHexString(words[index]));
    }
    if (isV4) {
      return text.append(':').append(v4(host, 12)).toString();
    }
    return length > 1 && best + length == 8 ? text.append(':').toString() : text.toString();
  }
}
