package mqcore.spark;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.CRL;
import java.security.cert.CertStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.CollectionCertStoreParameters;
import java.security.cert.PKIXBuilderParameters;
import java.security.cert.X509CertSelector;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Cipher;
import javax.crypto.EncryptedPrivateKeyInfo;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;
import javax.net.ssl.CertPathTrustManagerParameters;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Sockets by TLS as a `rocketmq://` URL says: `tls` (verify, insecure, off), `ca`, `crl`, `cert`,
 * `key`, `key_password_file`; files are in PEM. Without a URL the JVM's own authorities count.
 */
final class Tls {
  static final List<String> OPTIONS =
      List.of("tls", "ca", "crl", "cert", "key", "key_password_file");
  private static final Pattern KEY = Pattern.compile(
      "-----BEGIN (ENCRYPTED |)PRIVATE KEY-----([^-]*)-----END", Pattern.DOTALL);
  private static final List<String> KINDS = List.of("RSA", "EC", "EdDSA");
  private static final char[] NO_PASSWORD = {};

  private Tls() {
  }

  static void check(Map<String, String> options) {
    if (!List.of("verify", "insecure", "off").contains(options.getOrDefault("tls", "verify"))) {
      throw SourceException.option("nameServer: tls=" + options.get("tls")
          + ": expected one of verify, insecure, off");
    }
    if (!options.containsKey("cert")) {
      for (String name : List.of("key", "key_password_file")) {
        if (options.containsKey(name)) {
          throw SourceException.option("nameServer: " + name + "=" + options.get(name)
              + ": expected cert=FILE beside it");
        }
      }
    }
  }

  /** Whether peers' certificates are verified. */
  static boolean verifies(Map<String, String> options) {
    return !"insecure".equals(options.get("tls"));
  }

  /** Made anew for each connection: files change. */
  static SSLSocketFactory sockets(TreeMap<String, String> options) throws IOException {
    if (options.isEmpty()) {
      return (SSLSocketFactory) SSLSocketFactory.getDefault();
    }
    try {
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(own(options),
          verifies(options) ? trusted(options) : new TrustManager[] {new Anyone()}, null);
      return context.getSocketFactory();
    } catch (GeneralSecurityException error) {
      throw new IOException("nameServer: tls, ca, crl: " + error.getMessage(), error);
    }
  }

  private static TrustManager[] trusted(Map<String, String> options)
      throws IOException, GeneralSecurityException {
    TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
    String revoked = options.get("crl");
    KeyStore store = options.containsKey("ca") ? authorities(options.get("ca")) : null;
    if (revoked == null) {
      factory.init(store);
    } else if (store == null) {
      throw SourceException.option("nameServer: crl=" + revoked + ": expected ca=FILE beside it");
    } else {
      PKIXBuilderParameters parameters =
          new PKIXBuilderParameters(store, new X509CertSelector());
      Collection<? extends CRL> lists;
      try (InputStream file = Files.newInputStream(Path.of(revoked))) {
        lists = CertificateFactory.getInstance("X.509").generateCRLs(file);
      }
      if (lists.isEmpty()) {
        throw SourceException.option(
            "nameServer: crl=" + revoked + ": expected revocation lists, in PEM");
      }
      parameters.addCertStore(
          CertStore.getInstance("Collection", new CollectionCertStoreParameters(lists)));
      factory.init(new CertPathTrustManagerParameters(parameters));
    }
    return factory.getTrustManagers();
  }

  private static KeyStore authorities(String file) throws IOException, GeneralSecurityException {
    KeyStore store = empty();
    int number = 0;
    for (Certificate one : certificates(file)) {
      store.setCertificateEntry("ca" + number++, one);
    }
    if (number == 0) {
      throw SourceException.option("nameServer: ca=" + file + ": expected certificates in PEM");
    }
    return store;
  }

  private static KeyStore empty() throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance("PKCS12");
    store.load(null, null);
    return store;
  }

  private static Collection<? extends Certificate> certificates(String file)
      throws IOException, GeneralSecurityException {
    StringBuilder text = new StringBuilder();               // a private key may stand beside them
    Matcher found = Pattern.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----",
        Pattern.DOTALL).matcher(Files.readString(Path.of(file)));
    while (found.find()) {
      text.append(found.group()).append('\n');
    }
    return CertificateFactory.getInstance("X.509")
        .generateCertificates(new ByteArrayInputStream(Columns.ascii(text.toString())));
  }

  /** The certificate to show, and its key. */
  private static KeyManager[] own(Map<String, String> options)
      throws IOException, GeneralSecurityException {
    String certificate = options.get("cert");
    if (certificate == null) {
      return null;
    }
    String key = options.getOrDefault("key", certificate);
    try {
      KeyStore store = empty();
      store.setKeyEntry("own", privateKey(key, options.get("key_password_file")), NO_PASSWORD,
          certificates(certificate).toArray(Certificate[]::new));
      KeyManagerFactory factory =
          KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      factory.init(store, NO_PASSWORD);
      return factory.getKeyManagers();
    } catch (IOException | GeneralSecurityException | IllegalArgumentException error) {
      throw new IOException("nameServer: cert=" + certificate + ", key=" + key + ": "
          + error.getMessage() + "; expected a certificate and its private key in PEM (PKCS #8),"
          + " and key_password_file=FILE if it is encrypted, with AES", error);
    }
  }

  private static PrivateKey privateKey(String file, String passwordFile)
      throws IOException, GeneralSecurityException {
    Matcher found = KEY.matcher(Files.readString(Path.of(file)));
    if (!found.find()) {
      throw new IOException("no PRIVATE KEY");
    }
    byte[] bytes = Base64.getMimeDecoder().decode(found.group(2));
    PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(bytes);
    if (!found.group(1).isEmpty()) {
      String password = passwordFile == null ? ""
          : Files.readString(Path.of(passwordFile)).lines().findFirst().orElse("");
      EncryptedPrivateKeyInfo info = new EncryptedPrivateKeyInfo(bytes);
      String name = info.getAlgParameters().toString();     // of PBES2: its parts by name
      Cipher cipher = Cipher.getInstance(name);
      cipher.init(Cipher.DECRYPT_MODE, SecretKeyFactory.getInstance(name)
          .generateSecret(new PBEKeySpec(password.toCharArray())), info.getAlgParameters());
      spec = info.getKeySpec(cipher);
    }
    GeneralSecurityException failure = null;
    for (String kind : KINDS) {
      try {
        return KeyFactory.getInstance(kind).generatePrivate(spec);
      } catch (GeneralSecurityException error) {
        failure = error;
      }
    }
    throw failure;
  }

  /** Trusts every peer, whatever its name: `tls=insecure`. */
  private static final class Anyone extends X509ExtendedTrustManager {
    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind) {
      // nothing is checked
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, Socket socket) {
      // nothing is checked
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, SSLEngine engine) {
      // nothing is checked
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind) {
      // nothing is checked
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, Socket socket) {
      // nothing is checked
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, SSLEngine engine) {
      // nothing is checked
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return new X509Certificate[0];
    }
  }
}
