package mqcore.spark;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.zip.Inflater;
import java.util.zip.InflaterInputStream;
import net.jpountz.lz4.LZ4FrameInputStream;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The rows of one batch: places in the bytes of answers. A field is decoded when a column asks for
 * it.
 */
final class Rows {
  private static final int BODY_MAX = 64 << 20;
  private static final int COMPRESSION = 0x700;
  private static final int LZ4 = 0x100;
  private static final int ZSTD = 0x200;
  private static final int ZLIB = 0x300;
  private static final int ITEMS_MAX = 64;          // that are compared for duplicates

  final boolean wantsItems;
  final Set<String> tags;                           // of rows that are wanted; null: all
  byte[][] bytes = new byte[4096][];
  int[] at = new int[4096];
  int[] properties = new int[4096];
  int count;
  long size;
  boolean anyCompressed;
  long broken;                                      // bodies that cannot be decompressed, so far

  // -- names and values of all rows, made where a column needs them
  int[] itemRows = new int[4097];
  byte[][] itemBytes = new byte[8 * 4096][];
  int[] names = new int[8 * 4096];
  int[] nameEnds = new int[8 * 4096];
  int[] valueEnds = new int[8 * 4096];
  private int items;

  private int plainRow = -1;
  private byte[] plain;

  Rows(boolean wantsItems, Set<String> tags) {
    this.wantsItems = wantsItems;
    this.tags = tags;
  }

  void clear() {
    count = 0;
    size = 0;
    items = 0;
    anyCompressed = false;
    plainRow = -1;
  }

  /** Adds the records of a page that was looked at. */
  void add(Records.Page page) throws IOException {
    byte[] data = page.bytes();
    for (int place = 0; place < page.end();) {
      int length = Records.i32(data, place);
      int begin = Records.properties(data, place, page.end());
      if (tags == null || Records.hasTag(data, begin, place + length, tags)) {
        if (count == at.length) {
          grow();
        }
        bytes[count] = data;
        at[count] = place;
        properties[count] = begin;
        anyCompressed |= (Records.i32(data, place + Records.SYS_FLAG) & Records.COMPRESSED) != 0;
        if (wantsItems) {
          itemRows[count] = items;
          addItems(data, begin, place + length);
          itemRows[count + 1] = items;
        }
        count++;
        size += length;
      }
      place += length;
    }
  }

  private void grow() {
    int room = 2 * count;
    bytes = Arrays.copyOf(bytes, room);
    at = Arrays.copyOf(at, room);
    properties = Arrays.copyOf(properties, room);
    itemRows = Arrays.copyOf(itemRows, room + 1);
  }

  // -- properties ---------------------------------------------------------------------------------

  private void addItems(byte[] data, int begin, int end) {
    int first = items;
    boolean isPlain = true;
    for (int place = begin; place < end;) {
      int stop = place;
      int middle = -1;
      for (; stop < end && data[stop] != 2; stop++) {
        isPlain &= data[stop] >= 0;
        if (middle < 0 && data[stop] == 1) {
          middle = stop;
        }
      }
      if (middle > place && middle + 1 < stop) {
        isPlain &= isFirst(first, data, place, middle);
        addItem(data, place, middle, stop);
      }
      place = stop + 1;
    }
    if (!isPlain) {
      items = first;
      addDecoded(new String(data, begin, end - begin, StandardCharsets.UTF_8));
    }
  }

  /** Whether no item from `first` on has the same name. */
  private boolean isFirst(int first, byte[] data, int begin, int end) {
    if (items - first >= ITEMS_MAX) {
      return false;
    }
    for (int item = first; item < items; item++) {
      if (nameEnds[item] - names[item] == end - begin
          && Arrays.equals(itemBytes[item], names[item], nameEnds[item], data, begin, end)) {
        return false;
      }
    }
    return true;
  }

  private void addItem(byte[] data, int name, int nameEnd, int valueEnd) {
    if (items == names.length) {
      int room = 2 * items;
      itemBytes = Arrays.copyOf(itemBytes, room);
      names = Arrays.copyOf(names, room);
      nameEnds = Arrays.copyOf(nameEnds, room);
      valueEnds = Arrays.copyOf(valueEnds, room);
    }
    itemBytes[items] = data;
    names[items] = name;
    nameEnds[items] = nameEnd;
    valueEnds[items++] = valueEnd;
  }

  /** Broken UTF-8 is replaced; of several items with one name the last counts. */
  private void addDecoded(String text) {
    Map<String, String> found = new LinkedHashMap<>();
    for (String item : text.split("\u0002")) {
      int middle = item.indexOf('\u0001');
      if (middle > 0 && middle + 1 < item.length()) {
        found.put(item.substring(0, middle), item.substring(middle + 1));
      }
    }
    found.forEach((name, value) -> {
      byte[] head = name.getBytes(StandardCharsets.UTF_8);
      byte[] tail = value.getBytes(StandardCharsets.UTF_8);
      byte[] both = Arrays.copyOf(head, head.length + 1 + tail.length);
      System.arraycopy(tail, 0, both, head.length + 1, tail.length);
      addItem(both, 0, head.length, both.length);
    });
  }

  /** The item of a name; -1: none. */
  int item(int row, byte[] name) {
    for (int item = itemRows[row]; item < itemRows[row + 1]; item++) {
      if (nameEnds[item] - names[item] == name.length && Arrays.equals(
          itemBytes[item], names[item], nameEnds[item], name, 0, name.length)) {
        return item;
      }
    }
    return -1;
  }

  UTF8String name(int item) {
    return UTF8String.fromBytes(itemBytes[item], names[item], nameEnds[item] - names[item]);
  }

  UTF8String value(int item) {
    int begin = nameEnds[item] + 1;
    return UTF8String.fromBytes(itemBytes[item], begin, valueEnds[item] - begin);
  }

  // -- bodies -------------------------------------------------------------------------------------

  /** The body as a consumer gets it; null when it cannot be decompressed. */
  byte[] body(int row) {
    if (!anyCompressed || (sysFlag(row) & Records.COMPRESSED) == 0) {
      return stored(row);
    }
    if (plainRow != row) {
      plain = decompressed(stored(row), sysFlag(row) & COMPRESSION);
      plainRow = row;
      broken += plain == null ? 1 : 0;
    }
    return plain;
  }

  private int sysFlag(int row) {
    return Records.i32(bytes[row], at[row] + Records.SYS_FLAG);
  }

  byte[] stored(int row) {
    int begin = Records.behindHosts(bytes[row], at[row]) + 16;
    return Arrays.copyOfRange(bytes[row], begin, begin + Records.i32(bytes[row], begin - 4));
  }

  /** The first stream of a body, whole; null when it is broken, cut off, or too long. */
  private static byte[] decompressed(byte[] body, int kind) {
    try {
      return switch (kind) {
        case 0, ZLIB -> inflated(body);
        case LZ4 -> read(new LZ4FrameInputStream(new ByteArrayInputStream(body), true));
        case ZSTD -> {
          long size = Zstd.findFrameCompressedSize(body);
          yield Zstd.isError(size) ? null
              : read(new ZstdInputStream(new ByteArrayInputStream(body, 0, (int) size)));
        }
        default -> null;
      };
    } catch (IOException | RuntimeException error) {
      return null;
    }
  }

  private static byte[] read(InputStream plain) throws IOException {
    try (plain) {
      byte[] found = plain.readNBytes(BODY_MAX + 1);
      return found.length > BODY_MAX ? null : found;
    }
  }

  private static byte[] inflated(byte[] body) throws IOException {
    Inflater inflater = new Inflater();
    try {
      byte[] found =
          read(new InflaterInputStream(new ByteArrayInputStream(body), inflater));
      return inflater.finished() ? found : null;    // else it wants a dictionary
    } finally {
      inflater.end();
    }
  }
}
