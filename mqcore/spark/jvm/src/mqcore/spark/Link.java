package mqcore.spark;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import java.util.TreeMap;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * One connection. Requests are written one behind the other, answers are waited for, both by the
 * thread of a task. Between two tasks it is kept for 30 seconds.
 */
final class Link implements Closeable {
  private static final int FRAME_MAX = 16_777_212;
  private static final int RESPONSE = 1;
  private static final byte[] NO_BODY = {};
  private static final int RECEIVE_BYTES = 4 << 20;
  private static final long IDLE_NANOS = 30_000_000_000L;
  private static final int KEPT_MAX = 256;
  private static final long LOOK_MILLIS = 5_000;
  private static final Map<List<Object>, ArrayDeque<Link>> KEPT = new HashMap<>();
  private static Timer looks;

  final String address;
  private final Client client;
  private final Socket socket;
  private final InputStream in;
  private final OutputStream out;
  private final byte[] head = new byte[8];
  private int opaque;
  private long keptSince;

  /** A connection that lay idle, or a new one. */
  static Link open(String address, Client client) throws IOException {
    List<Link> old;
    Link found;
    synchronized (KEPT) {
      old = takeOld();
      ArrayDeque<Link> kept = KEPT.get(client.key(address));
      found = kept == null ? null : kept.pollLast();
    }
    old.forEach(Link::close);
    return found != null ? found : new Link(address, client);
  }

  /** A new connection: those that were kept may be broken. */
  static Link fresh(String address, Client client) throws IOException {
    return new Link(address, client);
  }

  /** Gives back a connection on which nothing is under way. */
  static void keep(Link link) {
    List<Link> old;
    synchronized (KEPT) {
      old = takeOld();
      if (KEPT.values().stream().mapToInt(ArrayDeque::size).sum() < KEPT_MAX) {
        link.keptSince = System.nanoTime();
        KEPT.computeIfAbsent(link.client.key(link.address), key -> new ArrayDeque<>()).add(link);
        link = null;
        look();
      }
    }
    old.forEach(Link::close);
    if (link != null) {
      link.close();
    }
  }

  private static void look() {
    if (looks == null) {
      looks = new Timer("rocketmq idle connections", true);
      looks.schedule(new TimerTask() {
        @Override
        public void run() {
          List<Link> old;
          synchronized (KEPT) {
            old = takeOld();
          }
          old.forEach(Link::close);
        }
      }, LOOK_MILLIS, LOOK_MILLIS);
    }
  }

  private static List<Link> takeOld() {
    ArrayDeque<Link> old = new ArrayDeque<>();
    long now = System.nanoTime();
    for (Iterator<ArrayDeque<Link>> each = KEPT.values().iterator(); each.hasNext();) {
      ArrayDeque<Link> kept = each.next();
      while (!kept.isEmpty() && now - kept.peekFirst().keptSince > IDLE_NANOS) {
        old.add(kept.pollFirst());
      }
      if (kept.isEmpty()) {
        each.remove();
      }
    }
    return List.copyOf(old);
  }

  private Link(String address, Client client) throws IOException {
    this.address = address;
    this.client = client;
    String[] place = Names.address("an address of a broker", address);
    Socket plain = new Socket();
    try {
      plain.setReceiveBufferSize(RECEIVE_BYTES);
      plain.setTcpNoDelay(true);
      plain.connect(new InetSocketAddress(place[0], Integer.parseInt(place[1])),
          client.connectMillis);
      plain.setSoTimeout(client.connectMillis);
      socket = client.tls ? secured(plain, place[0], Integer.parseInt(place[1]), client) : plain;
      in = socket.getInputStream();
      out = socket.getOutputStream();
    } catch (IOException error) {
      plain.close();
      throw new IOException("cannot connect to " + address + ": " + error.getMessage(), error);
    }
  }

  private static Socket secured(Socket plain, String host, int port, Client client)
      throws IOException {
    SSLSocket made = (SSLSocket) Tls.sockets(client.tlsOptions)
        .createSocket(plain, host, port, true);
    if (Tls.verifies(client.tlsOptions)) {
      SSLParameters parameters = made.getSSLParameters();
      parameters.setEndpointIdentificationAlgorithm("HTTPS");
      made.setSSLParameters(parameters);
    }
    made.startHandshake();
    return made;
  }

  /** Writes a request; the number that its answer has, too. */
  int send(int code, TreeMap<String, String> fields) throws IOException {
    return send(code, fields, NO_BODY);
  }

  int send(int code, TreeMap<String, String> fields, byte[] body) throws IOException {
    opaque = opaque + 1 & 0x3fffffff;
    out.write(client.frame(code, opaque, fields, body));
    return opaque;
  }

  /** The next answer; requests of the broker are passed over. */
  Answer answer(long millis) throws IOException {
    socket.setSoTimeout((int) Math.max(1, Math.min(millis, Integer.MAX_VALUE)));
    while (true) {
      fill(head, 8);
      int length = ByteBuffer.wrap(head).getInt();
      int word = ByteBuffer.wrap(head).getInt(4);
      int size = word & 0xffffff;
      if (length < 4 || length > FRAME_MAX || size > length - 4) {
        throw new IOException("a frame of " + length + " bytes from " + address);
      }
      if (word >>> 24 != 0) {
        throw new IOException("an answer that is not in JSON from " + address);
      }
      byte[] header = new byte[size];
      fill(header, size);
      byte[] body = new byte[length - 4 - size];
      fill(body, body.length);
      Answer found = Answer.read(header, 0, size);
      if ((found.flag & RESPONSE) != 0) {
        found.body = body;
        return found;
      }
    }
  }

  private void fill(byte[] bytes, int length) throws IOException {
    for (int at = 0; at < length;) {
      int count;
      try {
        count = in.read(bytes, at, length - at);
      } catch (java.net.SocketTimeoutException error) {
        throw new IOException("no answer from " + address + " in time", error);
      }
      if (count < 0) {
        throw new EOFException(address + " closed the connection");
      }
      at += count;
    }
  }

  /** One request and its answer, on a connection with nothing else under way. */
  Answer call(int code, TreeMap<String, String> fields, byte[] body, long millis)
      throws IOException {
    int wanted = send(code, fields, body);
    while (true) {
      Answer found = answer(millis);
      if (found.opaque == wanted) {
        return found;
      }
    }
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException error) {
      // the peer has closed it first
    }
  }
}
