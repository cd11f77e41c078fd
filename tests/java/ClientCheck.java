// The Java clients against a running server: `java -cp 'lib/*' ClientCheck.java BOOTSTRAP`. Prints a line a step; exits 1 on a failure.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.*;

public class ClientCheck {
  static final int PARTITIONS = 6;
  static String bootstrap;

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  static void step(String name) {
    System.out.println("ok " + name);
  }

  static Properties base(Object... pairs) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    for (int i = 0; i < pairs.length; i += 2) p.put(pairs[i], pairs[i + 1].toString());
    return p;
  }

  /** A consumer in its own thread: what it holds, what it read; stops by closing (or by going silent). */
  static class Member implements Runnable {
    final KafkaConsumer<String, String> consumer;
    final Set<Integer> assigned = ConcurrentHashMap.newKeySet();
    final Queue<ConsumerRecord<String, String>> read = new ConcurrentLinkedQueue<>();
    final Thread thread = new Thread(this);
    volatile boolean stop;
    volatile Throwable failure;

    Member(String group, String topic, Object... more) {
      Properties p = base("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
          "session.timeout.ms", "6000", "heartbeat.interval.ms", "500", "max.poll.interval.ms", "20000");
      for (int i = 0; i < more.length; i += 2) p.put(more[i], more[i + 1].toString());
      consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
      consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
        public void onPartitionsAssigned(Collection<TopicPartition> ps) { ps.forEach(x -> assigned.add(x.partition())); }
        public void onPartitionsRevoked(Collection<TopicPartition> ps) { ps.forEach(x -> assigned.remove(x.partition())); }
      });
      thread.start();
    }

    public void run() {
      try {
        while (!stop) {
          ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
          records.forEach(read::add);
          if (!records.isEmpty()) {
            try { consumer.commitSync(); } catch (RebalanceInProgressException | CommitFailedException e) { /* read again by the new owner */ }
          }
        }
        consumer.close();
      } catch (Throwable t) { failure = t; }
    }

    void leave() throws Exception {
      stop = true;
      thread.join(30_000);
      if (failure != null) throw new AssertionError("member failed", failure);
    }
  }

  interface Condition { boolean holds() throws Exception; }

  static void await(String what, Condition condition) throws Exception {
    long deadline = System.nanoTime() + 40_000_000_000L;
    while (!condition.holds()) {
      check(System.nanoTime() < deadline, "not in time: " + what);
      Thread.sleep(20);
    }
  }

  static void awaitSizes(List<Integer> sizes, Member... members) throws Exception {
    await("partitions " + sizes, () -> {
      Set<Integer> all = new HashSet<>();
      for (Member m : members) all.addAll(m.assigned);
      return Stream.of(members).map(m -> m.assigned.size()).sorted().toList().equals(sizes)
          && all.size() == sizes.stream().mapToInt(x -> x).sum();
    });
  }

  static void produce(String topic, int first, int count, Object... more) throws Exception {
    Properties p = base(more);
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int i = first; i < first + count; i++) sent.add(producer.send(new ProducerRecord<>(topic, i % PARTITIONS, null, "v" + i)));
      for (Future<RecordMetadata> f : sent) f.get(20, TimeUnit.SECONDS);
    }
  }

  static int distinct(Member... members) {
    return (int) Stream.of(members).flatMap(m -> m.read.stream()).map(ConsumerRecord::value).distinct().count();
  }

  static void groups(Admin admin, String topic, String group, Object... options) throws Exception {
    admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get(10, TimeUnit.SECONDS);
    produce(topic, 0, 600);
    Member a = new Member(group, topic, options), b = new Member(group, topic, options), c = new Member(group, topic, options);
    awaitSizes(List.of(2, 2, 2), a, b, c);
    await("600 values", () -> distinct(a, b, c) == 600);
    c.leave();
    awaitSizes(List.of(3, 3), a, b);
    Member d = new Member(group, topic, options);
    awaitSizes(List.of(2, 2, 2), a, b, d);
    ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get(10, TimeUnit.SECONDS);
    check(described.members().size() == 3 && described.groupState() == GroupState.STABLE, "described: " + described);
    a.leave(); b.leave(); d.leave();
    produce(topic, 600, 60);
    Member again = new Member(group, topic, options);
    await("the new values", () -> again.read.size() >= 60);
    check(again.read.size() == 60, "restart from the committed offsets, not " + again.read.size());
    again.leave();
    Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(10, TimeUnit.SECONDS);
    check(offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 660, "committed: " + offsets);
    admin.alterConsumerGroupOffsets(group, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3))).all().get(10, TimeUnit.SECONDS);
    check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(10, TimeUnit.SECONDS).get(new TopicPartition(topic, 0)).offset() == 3, "altered");
    check(admin.listGroups().all().get(10, TimeUnit.SECONDS).stream().anyMatch(g -> g.groupId().equals(group)), "listed");
    admin.deleteConsumerGroups(List.of(group)).all().get(10, TimeUnit.SECONDS);
  }

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
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
      check(settings.get("consumer.heartbeat.interval.ms").isDefault(), "a default");
      try {
        admin.incrementalAlterConfigs(Map.of(ofGroup, List.of(new AlterConfigOp(new ConfigEntry("consumer.session.timeout.ms", "1"), AlterConfigOp.OpType.SET)))).all().get(10, TimeUnit.SECONDS);
        throw new AssertionError("a session of 1 ms");
      } catch (ExecutionException e) { check(e.getCause() instanceof InvalidConfigurationException, "refused with " + e.getCause()); }
      step("admin of groups' settings");
      for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) produce("plain", 0, 120, "compression.type", codec);
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
      groups(admin, "range", "range-group");
      step("a group with default assignors");
      groups(admin, "cooperative", "cooperative-group", "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
      step("a cooperative group");
      admin.createTopics(List.of(new NewTopic("static", PARTITIONS, (short) 1))).all().get(10, TimeUnit.SECONDS);
      Member s1 = new Member("static-group", "static", "group.instance.id", "i1");
      Member s2 = new Member("static-group", "static", "group.instance.id", "i2");
      awaitSizes(List.of(3, 3), s1, s2);
      Set<Integer> held = Set.copyOf(s2.assigned);
      s2.leave();
      Member back = new Member("static-group", "static", "group.instance.id", "i2");
      await("the same partitions", () -> back.assigned.equals(held));
      check(s1.assigned.size() == 3, "nobody else was disturbed");
      s1.leave(); back.leave();
      step("static members");
      admin.deleteTopics(List.of("plain")).all().get(10, TimeUnit.SECONDS);
      check(!admin.listTopics().names().get(10, TimeUnit.SECONDS).contains("plain"), "deleted");
      step("topic deleted");
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
    System.exit(0);
  }
}
