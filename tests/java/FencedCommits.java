// Java's consumers in a group that is fenced by ownership.

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class FencedCommits extends Checks {
  static final List<KafkaConsumer<byte[], byte[]>> members = new ArrayList<>();

  static KafkaConsumer<byte[], byte[]> member() {
    Properties p = base("group.id", "fenced", "group.protocol", "consumer", "enable.auto.commit", "false");
    var consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    consumer.subscribe(List.of("fenced"));
    members.add(consumer);
    return consumer;
  }

  static void poll(String until, Condition condition) throws Exception {
    await(until, () -> {
      for (var member : members) member.poll(Duration.ofMillis(20));
      return condition.holds();
    });
  }

  static void checkRefused(Throwable refused) {
    check(refused instanceof KafkaException && refused.getMessage().contains("fenced"), "refused with " + refused);
  }

  public static void main(String[] arguments) { run(arguments, FencedCommits::steps); }

  static void steps() throws Exception {
    try (Admin admin = Admin.create(base())) {
      admin.createTopics(List.of(new NewTopic("fenced", 4, (short) 1))).all().get();
    }
    var a = member();
    poll("a has all", () -> a.assignment().size() == 4);
    var b = member();
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
    step("a lost partition is refused, the rest is committed");

    List<Exception> answers = Collections.synchronizedList(new ArrayList<>());
    a.commitAsync(both, (offsets, refused) -> answers.add(refused));
    poll("an answer", () -> !answers.isEmpty());
    checkRefused(answers.get(0));
    b.commitSync(Map.of(lost, new OffsetAndMetadata(5)));
    a.commitSync(Map.of(kept, new OffsetAndMetadata(6)));
    check(a.assignment().equals(had), "a has " + a.assignment());
    check(a.committed(both.keySet()).equals(Map.of(kept, new OffsetAndMetadata(6), lost, new OffsetAndMetadata(5))), "committed");
    step("nobody leaves the group for it");
    for (var member : members) member.close();
  }
}
