package mqcore.spark;

/** A read that cannot do what it was told; the message is one line for the user. */
final class SourceException extends RuntimeException {
  SourceException(String message) {
    super(message);
  }

  SourceException(String message, Throwable cause) {
    super(message, cause);
  }

  /** An option or a schema that cannot be: the message names it, and what is expected. */
  static IllegalArgumentException option(String message) {
    return new IllegalArgumentException(message);
  }
}
