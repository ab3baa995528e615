import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.proxy.ProxyStartup;

/** RocketMQ 5's name server, broker and proxy in one process: see tests/grpc/stock.py. */
public class Local {
  public static void main(String[] files) {
    NamesrvStartup.main0(new String[] {"-c", files[0]});
    ProxyStartup.main(new String[] {"-n", files[1], "-pm", "local", "-pc", files[2], "-bc", files[3]});
  }
}
