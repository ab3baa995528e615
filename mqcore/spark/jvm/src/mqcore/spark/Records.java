package mqcore.spark;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Set;

/** Records as pulls hold them: where their fields are, and whether their lengths fit. */
final class Records {
  static final int BODY_CRC = 8;
  static final int QUEUE_ID = 12;
  static final int FLAG = 16;
  static final int QUEUE_OFFSET = 20;
  static final int LOG_OFFSET = 28;
  static final int SYS_FLAG = 36;
  static final int BORN_TIME = 40;
  static final int BORN_HOST = 48;
  static final int BORN_V6 = 0x10;
  static final int STORE_V6 = 0x20;
  static final int COMPRESSED = 1;
  private static final int MAGIC = 0xDAA320A7;
  private static final int MAGIC_AT = 4;
  private static final int FIXED = 91;                  // bytes of the smallest record
  private static final VarHandle INTS =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
  private static final VarHandle LONGS =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
  private static final byte[] TAGS = {'T', 'A', 'G', 'S'};

  private Records() {
  }

  static int i32(byte[] bytes, int at) {
    return (int) INTS.get(bytes, at);
  }

  static long i64(byte[] bytes, int at) {
    return (long) LONGS.get(bytes, at);
  }

  static int bornHostSize(byte[] bytes, int at) {
    return (i32(bytes, at + SYS_FLAG) & BORN_V6) == 0 ? 8 : 20;
  }

  static int storeHostSize(byte[] bytes, int at) {
    return (i32(bytes, at + SYS_FLAG) & STORE_V6) == 0 ? 8 : 20;
  }

  /** Where the fields behind both hosts are: reconsume times, prepared offset, body. */
  static int behindHosts(byte[] bytes, int at) {
    return at + BORN_HOST + bornHostSize(bytes, at) + 8 + storeHostSize(bytes, at);
  }

  /** Where the properties are, with two bytes of length before; throws for what is no record. */
  static int properties(byte[] bytes, int at, int limit) throws IOException {
    int left = limit - at;
    if (left < FIXED || i32(bytes, at + MAGIC_AT) != MAGIC) {
      throw broken(at, limit);
    }
    int size = i32(bytes, at);
    int hosts = bornHostSize(bytes, at) + storeHostSize(bytes, at) - 16;
    if (size < FIXED + hosts || size > left) {
      throw broken(at, limit);
    }
    int end = at + size;
    int body = behindHosts(bytes, at) + 16;
    int length = i32(bytes, body - 4);
    if (length < 0 || length > end - body - 3) {
      throw broken(at, limit);
    }
    int found = body + length + 1 + (bytes[body + length] & 0xff) + 2;
    if (found > end || (short) (bytes[found - 2] << 8 | bytes[found - 1] & 0xff) != end - found) {
      throw broken(at, limit);
    }
    return found;
  }

  private static IOException broken(int at, int limit) {
    return new IOException("byte " + at + " of " + limit + ": no record");
  }

  static int count(byte[] bytes) throws IOException {
    int count = 0;
    for (int at = 0; at < bytes.length; at += i32(bytes, at)) {
      properties(bytes, at, bytes.length);
      count++;
    }
    return count;
  }

  /** Offset and store time of the first record. */
  static long[] first(byte[] bytes) throws IOException {
    properties(bytes, 0, bytes.length);
    return new long[] {i64(bytes, QUEUE_OFFSET),
        i64(bytes, BORN_HOST + bornHostSize(bytes, 0))};
  }

  /** Where the value of the TAGS is: begin and end; the last of several counts. Null: none. */
  static int[] tags(byte[] bytes, int begin, int end) {
    int[] found = null;
    for (int at = begin; at < end;) {
      int stop = at;
      int middle = -1;
      while (stop < end && bytes[stop] != 2) {
        if (middle < 0 && bytes[stop] == 1) {
          middle = stop;
        }
        stop++;
      }
      if (middle > at && middle + 1 < stop
          && Arrays.equals(bytes, at, middle, TAGS, 0, TAGS.length)) {
        found = new int[] {middle + 1, stop};
      }
      at = stop + 1;
    }
    return found;
  }

  /** Records of one answer: those before `end`. */
  record Page(byte[] bytes, int end) {
  }

  /** The result of a look at an answer. `missing` is the offset behind a hole; -1 without one. */
  record Look(Page page, int count, long next, long missing) {
  }

  /**
   * Checks the records of an answer: those from `begin` on, below `stop`, in their order.
   *
   * whole  every offset must be there: nothing filters
   * Throws for bytes that are no records, or not in order.
   */
  static Look look(byte[] bytes, long begin, long stop, boolean whole) throws IOException {
    long expected = begin;
    int count = 0;
    int at = 0;
    while (at < bytes.length) {
      properties(bytes, at, bytes.length);
      long offset = i64(bytes, at + QUEUE_OFFSET);
      if (offset < expected) {
        throw new IOException("offset " + offset + ": expected " + expected + " or more");
      }
      if (offset >= stop) {
        break;
      }
      if (whole && offset != expected) {
        return new Look(new Page(bytes, at), count, expected, offset);
      }
      expected = offset + 1;
      count++;
      at += i32(bytes, at);
    }
    return new Look(new Page(bytes, at), count, expected, -1);
  }

  /** Whether the TAGS of a record is one of some: a broker compares hashes only. */
  static boolean hasTag(byte[] bytes, int begin, int end, Set<String> wanted) {
    int[] found = tags(bytes, begin, end);
    return found != null && wanted.contains(new String(
        bytes, found[0], found[1] - found[0], java.nio.charset.StandardCharsets.UTF_8));
  }
}
