// Java's consumers in a group that is fenced by ownership: `java -cp 'lib/*' FencedCommits.java BOOTSTRAP`. Prints a line a step.

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class FencedCommits {
  static final List<KafkaConsumer<byte[], byte[]>> members = new ArrayList<>();

  static KafkaConsumer<byte[], byte[]> member(String bootstrap) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    p.put("group.id", "fenced");
    p.put("group.protocol", "consumer");
    p.put("enable.auto.commit", "false");
    var consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    consumer.subscribe(List.of("fenced"));
    members.add(consumer);
    return consumer;
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  interface Condition { boolean holds(); }

  static void poll(String until, Condition condition) {
    long deadline = System.nanoTime() + 30_000_000_000L;
    while (!condition.holds()) {
      check(System.nanoTime() < deadline, "not within 30 s: " + until);
      for (var member : members) member.poll(Duration.ofMillis(20));
    }
  }

  static void checkRefused(Throwable refused) {
    check(refused instanceof KafkaException && refused.getMessage().contains("fenced"), "refused with " + refused);
  }

  public static void main(String[] arguments) throws Exception {
    try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", arguments[0]))) {
      admin.createTopics(List.of(new NewTopic("fenced", 4, (short) 1))).all().get();
    }
    var a = member(arguments[0]);
    poll("a has all", () -> a.assignment().size() == 4);
    var b = member(arguments[0]);
    poll("a and b have two each", () -> a.assignment().size() == 2 && b.assignment().size() == 2);
    var had = Set.copyOf(a.assignment());
    var kept = had.iterator().next();
    var lost = b.assignment().iterator().next();
    var both = Map.of(kept, new OffsetAndMetadata(3), lost, new OffsetAndMetadata(3));

    long began = System.nanoTime();
    try {
      a.commitSync(both);
      check(false, "the commit of a lost partition succeeded");
    } catch (KafkaException refused) { checkRefused(refused); }
    check(System.nanoTime() - began < 5_000_000_000L, "it was repeated");
    var committed = a.committed(both.keySet());
    check(committed.get(lost) == null && committed.get(kept).offset() == 3, "committed " + committed);
    System.out.println("ok a lost partition is refused, the rest is committed");

    List<Exception> answers = Collections.synchronizedList(new ArrayList<>());
    a.commitAsync(both, (offsets, refused) -> answers.add(refused));
    poll("an answer", () -> !answers.isEmpty());
    checkRefused(answers.get(0));
    b.commitSync(Map.of(lost, new OffsetAndMetadata(5)));
    a.commitSync(Map.of(kept, new OffsetAndMetadata(6)));
    check(a.assignment().equals(had), "a has " + a.assignment());
    check(a.committed(both.keySet()).equals(Map.of(kept, new OffsetAndMetadata(6), lost, new OffsetAndMetadata(5))), "committed");
    System.out.println("ok nobody leaves the group for it");
    for (var member : members) member.close();
  }
}
