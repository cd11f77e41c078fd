// Driver of Java's clients (../matrix/matrix_stage.py says what a driver is).

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.AppInfoParser;

public class ClientDriver {
  static final ObjectMapper JSON = new ObjectMapper();
  static String bootstrap;

  static synchronized void say(Map<String, ?> what) {
    try {
      System.out.println(JSON.writeValueAsString(what));
      System.out.flush();
    } catch (Exception failure) { throw new IllegalStateException(failure); }
  }

  static Map<String, Object> settings(Object... pairs) {
    Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
    for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i].toString(), pairs[i + 1]);
    return all;
  }

  // -- a member

  static Map<String, Object> memberSettings(JsonNode o, boolean next) {
    Map<String, Object> all = settings("group.id", o.get("group").asText(), "client.id", o.get("name").asText(),
        "auto.offset.reset", "earliest", "enable.auto.commit", "false", "metadata.max.age.ms", "1000", "allow.auto.create.topics", "false");
    if (o.hasNonNull("instance")) all.put("group.instance.id", o.get("instance").asText());
    if (next) {
      all.put("group.protocol", "consumer");
      return all;
    }
    all.put("session.timeout.ms", o.get("session_timeout_ms").asText());
    all.put("heartbeat.interval.ms", o.get("heartbeat_interval_ms").asText());
    // Without it, the default: range, and cooperative-sticky for whom it has in common.
    if (o.get("cooperative").asBoolean()) all.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
    return all;
  }

  static void member(JsonNode o, BufferedReader lines) throws Exception {
    CountDownLatch closing = new CountDownLatch(1);
    Thread listener = new Thread(() -> {
      try {
        for (String line = lines.readLine(); line != null && !line.equals("close"); line = lines.readLine()) { }
      } catch (Exception gone) { /* the runner has ended */ }
      closing.countDown();
    });
    listener.setDaemon(true);
    listener.start();
    boolean next = "consumer".equals(o.path("protocol").asText());
    String topic = o.get("topic").asText();
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(memberSettings(o, next), new StringDeserializer(), new StringDeserializer())) {
      if (!o.path("pattern").asBoolean()) consumer.subscribe(List.of(topic));
      else if (next) consumer.subscribe(new SubscriptionPattern(topic));
      else consumer.subscribe(Pattern.compile(topic));
      List<Integer> held = null;
      while (closing.getCount() > 0) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(50));
        List<Integer> now = consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
        if (!now.equals(held)) say(Map.of("assigned", held = now));
        if (records.isEmpty()) continue;
        say(Map.of("records", StreamSupport.stream(records.spliterator(), false).map(r -> List.of(r.partition(), r.offset(), r.value())).toList()));
        try {
          consumer.commitSync();
          say(Map.of("committed", true));
        } catch (RuntimeException refused) { say(Map.of("error", refused.toString())); }
      }
    }
    say(Map.of("closed", true));
  }

  // -- what is asked for, one after the other

  static Admin admin;

  static <T> T got(KafkaFuture<T> future) throws Exception { return future.get(20, TimeUnit.SECONDS); }

  static Map<String, ?> produce(JsonNode o) throws Exception {
    Map<String, Object> all = settings("compression.type", o.get("codec").asText(), "linger.ms", 50,
        "enable.idempotence", o.path("idempotent").asBoolean());
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(all, new StringSerializer(), new StringSerializer())) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int n = o.get("first").asInt(); n < o.get("first").asInt() + o.get("count").asInt(); n++) {
        String value = "v" + n + ".".repeat(o.get("pad").asInt());
        sent.add(producer.send(new ProducerRecord<>(o.get("topic").asText(), n % o.get("partitions").asInt(), "k" + n, value,
            List.of(new RecordHeader("h", "x".getBytes(StandardCharsets.UTF_8))))));
      }
      for (Future<RecordMetadata> each : sent) each.get(40, TimeUnit.SECONDS);
    }
    return Map.of();
  }

  static Map<String, ?> read(JsonNode o) {
    List<List<?>> found = new ArrayList<>();
    Map<String, Object> all = settings("isolation.level", o.get("isolation").asText());
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer())) {
      List<TopicPartition> places = IntStream.range(0, o.get("partitions").asInt()).mapToObj(p -> new TopicPartition(o.get("topic").asText(), p)).toList();
      consumer.assign(places);
      consumer.seekToBeginning(places);
      while (found.size() < o.get("count").asInt())
        consumer.poll(Duration.ofMillis(200)).forEach(r -> found.add(List.of(r.partition(), r.offset(), r.key(), r.value())));
    }
    return Map.of("records", found);
  }

  // -- transactions

  static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

  static KafkaProducer<String, String> transactional(JsonNode o) {
    return producers.computeIfAbsent(o.get("name").asText(), name -> {
      Map<String, Object> all = settings("transactional.id", o.get("id").asText());
      KafkaProducer<String, String> producer = new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
      producer.initTransactions();
      return producer;
    });
  }

  static void transact(JsonNode o) throws Exception {
    KafkaProducer<String, String> producer = transactional(o);
    producer.beginTransaction();
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    for (int n = o.get("first").asInt(); n < o.get("first").asInt() + o.get("count").asInt(); n++) {
      String value = "v" + n + ".".repeat(o.get("pad").asInt());
      sent.add(producer.send(new ProducerRecord<>(o.get("topic").asText(), n % o.get("partitions").asInt(), "k" + n, value)));
    }
    producer.flush();
    for (Future<RecordMetadata> each : sent) each.get(40, TimeUnit.SECONDS);
  }

  static void end(JsonNode o) {
    KafkaProducer<String, String> producer = producers.get(o.get("name").asText());
    if (o.get("commit").asBoolean()) producer.commitTransaction();
    else producer.abortTransaction();
  }

  static void copy(JsonNode o) {
    Map<String, Object> all = settings("group.id", o.get("group").asText(), "auto.offset.reset", "earliest",
        "enable.auto.commit", "false", "isolation.level", "read_committed", "max.poll.records", o.get("count").asInt());
    KafkaProducer<String, String> producer = transactional(o);
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(o.get("source").asText()));
      producer.beginTransaction();
      Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
      for (int read = 0; read < o.get("count").asInt();) {
        for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
          read++;
          producer.send(new ProducerRecord<>(o.get("topic").asText(), r.partition(), r.key(), r.value()));
          next.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
        }
      }
      producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
      end(o);
    }
  }

  static Map<String, ?> describe(String group) throws Exception {
    ConsumerGroupDescription found = got(admin.describeConsumerGroups(List.of(group)).describedGroups().get(group));
    return Map.of("state", found.groupState().toString(), "members", found.members().size());
  }

  static Map<String, ?> offsets(String group) throws Exception {
    Map<Integer, Long> found = new HashMap<>();
    got(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).forEach((at, offset) -> found.put(at.partition(), offset.offset()));
    return Map.of("offsets", found);
  }

  static Map<String, ?> obey(JsonNode o) throws Exception {
    String topic = o.path("topic").asText(), group = o.path("group").asText();
    TopicPartition place = new TopicPartition(topic, o.path("partition").asInt());
    switch (o.get("do").asText()) {
      case "produce": return produce(o);
      case "read": return read(o);
      case "transact": transact(o); break;
      case "end": end(o); break;
      case "copy": copy(o); break;
      case "enter": SecuredClient.enter(o); break;
      case "send": SecuredClient.send(o); break;
      case "create_topic": got(admin.createTopics(List.of(new NewTopic(topic, o.get("partitions").asInt(), (short) 1))).all()); break;
      case "topics": return Map.of("topics", got(admin.listTopics().names()));
      case "delete_topic": got(admin.deleteTopics(List.of(topic)).all()); break;
      case "groups": return Map.of("groups", got(admin.listGroups().all()).stream().map(GroupListing::groupId).toList());
      case "describe": return describe(group);
      case "offsets": return offsets(group);
      case "set_offset": got(admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(o.get("offset").asLong()))).all()); break;
      case "delete_offset": got(admin.deleteConsumerGroupOffsets(group, Set.of(place)).all()); break;
      case "delete_group": got(admin.deleteConsumerGroups(List.of(group)).all()); break;
      default: throw new IllegalArgumentException("no " + o.get("do"));
    }
    return Map.of();
  }

  public static void main(String[] arguments) throws Exception {
    JsonNode options = JSON.readTree(arguments[0]);
    bootstrap = options.get("bootstrap").asText();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    if (options.has("group")) {
      try {
        member(options, lines);
      } catch (Throwable failure) {
        say(Map.of("error", failure.toString()));
        System.exit(1);
      }
      System.exit(0);
    }
    admin = Admin.create(settings());
    say(Map.of("version", AppInfoParser.getVersion()));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      try {
        say(Map.of("done", obey(JSON.readTree(line))));
      } catch (Exception failure) { say(Map.of("failed", failure.toString())); }
    }
    System.exit(0);
  }
}
