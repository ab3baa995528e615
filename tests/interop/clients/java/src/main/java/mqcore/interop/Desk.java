package mqcore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Many commands in one JVM, several at a time: each line of the input is a JSON object with the
 * `number` of a task, the `words` of its command line, and `log`, the file of what it prints; each
 * line of the output is the number and the exit `code` of one that has ended. See tests/interop/desk.py.
 */
final class Desk {
    /** Where the calling thread's command prints; its client's threads inherit it. */
    private static final InheritableThreadLocal<PrintStream> OUT = new InheritableThreadLocal<>();

    private Desk() {
    }

    static PrintStream out() {
        PrintStream out = OUT.get();
        return out == null ? System.out : out;
    }

    static int run() throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);                  // what libraries print is no answer
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject task = JSON.parseObject(line);
            new Thread(() -> answer(task, answers), "task-" + task.get("number")).start();
        }
        return 0;
    }

    private static void answer(JSONObject task, PrintStream answers) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("number", task.get("number"));
        answer.put("code", perform(task));
        synchronized (answers) {
            answers.println(JSON.toJSONString(answer));
        }
    }

    /** The exit code that a process of its own would have. */
    private static int perform(JSONObject task) {
        try (PrintStream out = new PrintStream(new FileOutputStream(task.getString("log")), true,
                StandardCharsets.UTF_8)) {
            OUT.set(out);
            try {
                return Main.run(task.getJSONArray("words").toArray(new String[0]));
            } catch (Throwable error) {
                error.printStackTrace(out);
                return 1;
            }
        } catch (FileNotFoundException error) {
            error.printStackTrace();
            return 1;
        }
    }
}
