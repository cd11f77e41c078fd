// Decisions of Apache Kafka's StandardAuthorizer (acl_decisions.py). Reads lines of words that are separated by tabs:
//
//   new  EVERYONE SUPER_USERS                                   an authorizer without ACLs, with these two settings
//   add  ID RESOURCE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
//   gone ID
//   ask  PRINCIPAL HOST OPERATION RESOURCE NAME
//   any  PRINCIPAL HOST OPERATION RESOURCE                      whether it is allowed on a resource of any name
//
// Resources, patterns, operations and permissions are Kafka's codes. Each ask and any prints a line, A or D.

import java.io.*;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.*;
import org.apache.kafka.server.authorizer.*;

public class AclDecisions {
  record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
    public String listenerName() { return "SASL"; }
    public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_SSL; }
    public int requestType() { return 0; }
    public int requestVersion() { return 0; }
    public String clientId() { return "decisions"; }
    public int correlationId() { return 0; }
  }

  static final Metrics METRICS = new Metrics();
  static PluginMetricsImpl metrics;
  static StandardAuthorizer authorizer;

  static Asker asker(String[] words) throws IOException {
    return new Asker(SecurityUtils.parseKafkaPrincipal(words[1]), InetAddress.getByName(words[2]));
  }

  static AclOperation operation(String code) { return AclOperation.fromCode(Byte.parseByte(code)); }

  static ResourceType resource(String code) { return ResourceType.fromCode(Byte.parseByte(code)); }

  static AuthorizationResult obey(String[] words) throws IOException {
    switch (words[0]) {
      case "new":
        if (metrics != null) metrics.close();
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("allow.everyone.if.no.acl.found", words[1], "super.users", words.length > 2 ? words[2] : ""));
        authorizer.withPluginMetrics(metrics = new PluginMetricsImpl(METRICS, Map.of()));
        authorizer.completeInitialLoad();
        return null;
      case "add":
        authorizer.addAcl(new Uuid(1, Long.parseLong(words[1])), new StandardAcl(resource(words[2]), words[3],
            PatternType.fromCode(Byte.parseByte(words[4])), words[5], words[6], operation(words[7]),
            AclPermissionType.fromCode(Byte.parseByte(words[8]))));
        return null;
      case "gone":
        authorizer.removeAcl(new Uuid(1, Long.parseLong(words[1])));
        return null;
      case "ask":
        ResourcePattern pattern = new ResourcePattern(resource(words[4]), words.length > 5 ? words[5] : "", PatternType.LITERAL);
        return authorizer.authorize(asker(words), List.of(new Action(operation(words[3]), pattern, 1, false, false))).get(0);
      case "any":
        return authorizer.authorizeByResourceType(asker(words), operation(words[3]), resource(words[4]));
      default:
        throw new IllegalArgumentException(String.join(" ", words));
    }
  }

  public static void main(String[] arguments) throws IOException {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    StringBuilder decisions = new StringBuilder();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      AuthorizationResult decision = obey(line.split("\t"));
      if (decision != null) decisions.append(decision == AuthorizationResult.ALLOWED ? "A\n" : "D\n");
    }
    System.out.print(decisions);
  }
}
