import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.rocketmq.acl.common.AclException;
import org.apache.rocketmq.acl.plain.PlainAccessResource;
import org.apache.rocketmq.acl.plain.PlainAccessValidator;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory;
import org.apache.rocketmq.remoting.common.RemotingHelper;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * What the stock classes say. Lines of standard input, fields parted by tabs; one line of answer each:
 *
 *   home FOLDER               its rules are those of what follows; "ok", or why they cannot be loaded
 *   judge ADDRESS FRAME       a frame in base64, without its length; "ok", or the remark of the refusal
 *   pattern PATTERN ADDRESS   "match", "other", or "bad" for a pattern that is none
 */
public class AclOracle {
    private static PlainAccessValidator validator;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            out.println(answer(fields).replace("\n", "\\n").replace("\r", "\\r"));
            if (!in.ready()) {
                out.flush();
            }
        }
        out.flush();
        System.exit(0);
    }

    private static String answer(String[] fields) {
        switch (fields[0]) {
            case "home":
                return load(fields[1]);
            case "judge":
                return judge(fields[1], Base64.getDecoder().decode(fields[2]));
            default:
                return matches(fields[1], fields[2]);
        }
    }

    private static String load(String folder) {
        System.setProperty("rocketmq.home.dir", folder);
        try {
            validator = new PlainAccessValidator();
            return "ok";
        } catch (Throwable error) {
            return RemotingHelper.exceptionSimpleDesc(error);
        }
    }

    private static String judge(String address, byte[] frame) {
        try {
            RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame));
            validator.validate(validator.parse(command, address));
            return "ok";
        } catch (Throwable error) {
            return RemotingHelper.exceptionSimpleDesc(error);
        }
    }

    private static String matches(String pattern, String address) {
        try {
            PlainAccessResource resource = new PlainAccessResource();
            resource.setWhiteRemoteAddress(address);
            return new RemoteAddressStrategyFactory().getRemoteAddressStrategy(pattern)
                .match(resource) ? "match" : "other";
        } catch (AclException error) {
            return "bad " + error.getMessage();
        } catch (Throwable error) {
            return "error " + error;
        }
    }
}
