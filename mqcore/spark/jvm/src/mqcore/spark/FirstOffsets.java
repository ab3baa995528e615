package mqcore.spark;

import java.io.IOException;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.TreeMap;
import java.util.UUID;

/**
 * Where a stream began: kept in a folder of the query's, written once; the file of the source in
 * Python. Spark asks for the first offsets again after a crash before the first batch was done, and
 * keeps them nowhere itself: what "latest" meant at the first time would be lost.
 */
final class FirstOffsets {
  private static final String FILE = "initial-offsets.json";

  private FirstOffsets() {
  }

  /** The offsets that were kept; null: none. */
  static TreeMap<Queue, Long> read(String folder) {
    if (folder == null) {
      return null;
    }
    Path path = path(folder);
    try {
      return Positions.fromJson(Files.readString(path));
    } catch (NoSuchFileException error) {
      return null;
    } catch (IOException error) {
      throw new SourceException("stateDir: " + path + " cannot be read: " + error, error);
    }
  }

  /** Keeps them, unless others were kept before: those are returned then. */
  static TreeMap<Queue, Long> keep(String folder, TreeMap<Queue, Long> offsets) {
    if (folder == null) {
      return offsets;
    }
    Path path = path(folder);
    Path fresh = path.resolveSibling("." + FILE + "." + UUID.randomUUID());
    try {
      Files.createDirectories(path.getParent());
      try (FileChannel file = FileChannel.open(fresh, StandardOpenOption.CREATE_NEW,
          StandardOpenOption.WRITE)) {
        ByteBuffer content =
            ByteBuffer.wrap(Positions.toJson(offsets).getBytes(StandardCharsets.UTF_8));
        while (content.hasRemaining()) {
          file.write(content);
        }
        file.force(true);
      }
      try {
        Files.createLink(path, fresh);
      } catch (FileAlreadyExistsException error) {
        // another start has kept its own
      } finally {
        Files.deleteIfExists(fresh);
      }
      try (FileChannel parent = FileChannel.open(path.getParent())) {
        parent.force(true);
      }
    } catch (IOException error) {
      throw new SourceException("stateDir: " + path + " cannot be written: " + error, error);
    }
    return read(folder);
  }

  private static Path path(String folder) {
    if (!folder.matches("[a-zA-Z][a-zA-Z0-9+.-]*:.*")) {
      return Path.of(folder, FILE);
    }
    URI place = URI.create(folder);
    if (!"file".equals(place.getScheme())) {
      throw SourceException.option("stateDir '" + folder
          + "': expected a folder that the driver can write");
    }
    return Path.of(place.getPath(), FILE);
  }
}
