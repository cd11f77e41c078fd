// Java's admin client, and reading by time and by end.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.serialization.*;

public class ClientCheck extends Checks {
  static final int PARTITIONS = 6;

  public static void main(String[] arguments) { run(arguments, ClientCheck::steps); }

  static void steps() throws Exception {
    try (Admin admin = Admin.create(base())) {
      check(admin.describeCluster().nodes().get(10, TimeUnit.SECONDS).size() >= 1, "nodes");
      admin.createTopics(List.of(new NewTopic("plain", Optional.of(PARTITIONS), Optional.empty()).configs(Map.of("retention.ms", "3600000")))).all().get(10, TimeUnit.SECONDS);
      TopicDescription plain = admin.describeTopics(List.of("plain")).allTopicNames().get(10, TimeUnit.SECONDS).get("plain");
      check(plain.partitions().size() == PARTITIONS, "described " + plain);
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "plain");
      check(admin.describeConfigs(List.of(resource)).all().get(10, TimeUnit.SECONDS).get(resource).get("retention.ms").value().equals("3600000"), "config");
      admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET)))).all().get(10, TimeUnit.SECONDS);
      check(admin.describeConfigs(List.of(resource)).all().get(10, TimeUnit.SECONDS).get(resource).get("retention.ms").value().equals("7200000"), "altered config");
      step("admin of topics");
      ConfigResource ofGroup = new ConfigResource(ConfigResource.Type.GROUP, "configured");
      admin.incrementalAlterConfigs(Map.of(ofGroup, List.of(new AlterConfigOp(new ConfigEntry("consumer.session.timeout.ms", "50000"), AlterConfigOp.OpType.SET)))).all().get(10, TimeUnit.SECONDS);
      Config settings = admin.describeConfigs(List.of(ofGroup), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get(10, TimeUnit.SECONDS).get(ofGroup);
      ConfigEntry session = settings.get("consumer.session.timeout.ms");
      check(session.value().equals("50000") && session.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, "group config " + session);
      check(session.synonyms().size() == 2 && session.type() == ConfigEntry.ConfigType.INT && !session.isReadOnly(), "group config " + session);
      check(settings.get("consumer.heartbeat.interval.ms").source() != ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, "a setting of the server");
      try {
        admin.incrementalAlterConfigs(Map.of(ofGroup, List.of(new AlterConfigOp(new ConfigEntry("consumer.session.timeout.ms", "1"), AlterConfigOp.OpType.SET)))).all().get(10, TimeUnit.SECONDS);
        throw new AssertionError("a session of 1 ms");
      } catch (ExecutionException e) { check(e.getCause() instanceof InvalidConfigurationException, "refused with " + e.getCause()); }
      step("admin of groups' settings");
      for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) produce("plain", PARTITIONS, 0, 120, "compression.type", codec);
      TopicPartition zero = new TopicPartition("plain", 0);
      check(admin.listOffsets(Map.of(zero, OffsetSpec.latest())).partitionResult(zero).get(10, TimeUnit.SECONDS).offset() == 100, "latest");
      check(admin.listOffsets(Map.of(zero, OffsetSpec.maxTimestamp())).partitionResult(zero).get(10, TimeUnit.SECONDS).offset() >= 0, "max timestamp");
      step("idempotent producer, every compression");
      try (KafkaConsumer<String, String> reader = new KafkaConsumer<>(base(), new StringDeserializer(), new StringDeserializer())) {
        List<TopicPartition> all = IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition("plain", p)).toList();
        reader.assign(all);
        reader.seekToBeginning(all);
        List<String> values = new ArrayList<>();
        await("600 values", () -> { reader.poll(Duration.ofMillis(200)).forEach(r -> values.add(r.value())); return values.size() >= 600; });
        check(reader.endOffsets(all).values().stream().mapToLong(x -> x).sum() == 600, "end offsets");
        check(reader.offsetsForTimes(Map.of(zero, 0L)).get(zero).offset() == 0, "by time");
      }
      step("a consumer without a group");
      admin.deleteTopics(List.of("plain")).all().get(10, TimeUnit.SECONDS);
      check(!admin.listTopics().names().get(10, TimeUnit.SECONDS).contains("plain"), "deleted");
      step("topic deleted");
    }
  }
}
