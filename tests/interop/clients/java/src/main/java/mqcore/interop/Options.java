package mqcore.interop;

import java.util.HashMap;
import java.util.Map;

/** Command line of the form `--name value` or `--flag`; the same in all four languages. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args, int from) {
        for (int i = from; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                throw new IllegalArgumentException("expected an option, found: " + args[i]);
            }
            boolean hasValue = i + 1 < args.length && !args[i + 1].startsWith("--");
            values.put(args[i].substring(2), hasValue ? args[++i] : "true");
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing option: --" + name);
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return values.containsKey(name) ? Integer.parseInt(values.get(name)) : otherwise;
    }

    boolean flag(String name) {
        return values.containsKey(name);
    }
}
