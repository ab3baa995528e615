import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Asks a stock SQL92 filter. Each line of the input is an expression and any number of property
 * names and values, each in hexadecimal UTF-8, with tabs between them. Each line of the output is
 * one letter: R refused by the compiler, T true, F false, N null, X raised, O another value.
 */
public class Evaluate {
    public static void main(String[] args) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(System.out, false, "US-ASCII");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(line.split("\t", -1)));
            if (!lines.ready()) {
                answers.flush();
            }
        }
        answers.flush();
    }

    private static String answer(String[] fields) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(fields[0]));
        } catch (Throwable refused) {
            return "R";
        }
        Map<String, Object> properties = new HashMap<>();
        for (int i = 1; i + 1 < fields.length; i += 2) {
            properties.put(text(fields[i]), text(fields[i + 1]));
        }
        try {
            Object value = expression.evaluate(new Properties(properties));
            if (value == null) {
                return "N";
            }
            return value instanceof Boolean ? ((Boolean) value ? "T" : "F") : "O";
        } catch (Throwable raised) {
            return "X";
        }
    }

    private static String text(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, Object> values;

        Properties(Map<String, Object> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }
}
