import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.codelibs.opensearch.runner.node.OpenSearchRunnerNode;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** One node of OpenSearch without security: its home, then settings as name=value. */
class OpenSearchNode {
    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder().put("path.home", arguments[0]);
        for (String each : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            String[] pair = each.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Environment environment = new Environment(settings.build(), Path.of(arguments[0], "config"));
        Node node = new OpenSearchRunnerNode(
            environment, List.of(Netty4Plugin.class, CommonAnalysisPlugin.class));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        node.start();
        System.out.println("started");
        Thread.currentThread().join();
    }
}
