import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.Version;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.PluginInfo;
import org.opensearch.transport.TransportService;

/**
 * Runs an OpenSearch node whose plugins are on the class path.
 *
 * <p>Arguments: the id of a process with which the node ends too, the home folder, then settings as
 * {@code name=value}. When the node is ready, its addresses are printed as one line: HTTP, transport.
 */
public final class Launcher {
  private static final String PAINLESS = "lang-painless";

  private Launcher() {}

  private static final class PluggedNode extends Node {
    PluggedNode(Environment environment, Collection<PluginInfo> plugins) {
      super(environment, plugins, true);
    }
  }

  public static void main(String[] arguments) throws Exception {
    long owner = Long.parseLong(arguments[0]);
    ProcessHandle.of(owner).ifPresent(it -> it.onExit().thenRun(() -> Runtime.getRuntime().halt(1)));
    String home = arguments[1];
    Settings.Builder settings = Settings.builder().put("path.home", home);
    for (String argument : List.of(arguments).subList(2, arguments.length)) {
      String[] parts = argument.split("=", 2);
      settings.put(parts[0], parts[1]);
    }
    Environment environment =
        InternalSettingsPreparer.prepareEnvironment(
            settings.build(), Map.of(), Path.of(home, "config"), () -> "node");
    LogConfigurator.setNodeName(Node.NODE_NAME_SETTING.get(environment.settings()));
    Node node =
        new PluggedNode(
            environment,
            List.of(
                plugin("transport-netty4", "org.opensearch.transport.Netty4ModulePlugin"),
                plugin("analysis-common", "org.opensearch.analysis.common.CommonAnalysisModulePlugin"),
                plugin(PAINLESS, "org.opensearch.painless.PainlessModulePlugin"),
                plugin("opensearch-knn", "org.opensearch.knn.plugin.KNNPlugin", PAINLESS)));
    node.start();
    System.out.printf(
        "%s %s%n",
        node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress(),
        node.injector().getInstance(TransportService.class).boundAddress().publishAddress());
    new CountDownLatch(1).await();
  }

  private static PluginInfo plugin(String name, String className, String... extended) {
    String version = Version.CURRENT.toString();
    return new PluginInfo(
        name, "on the class path", version, Version.CURRENT, "21", className, null,
        List.of(extended), false);
  }
}
