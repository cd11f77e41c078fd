// Java's consumers whose heartbeats the server holds.
// A heartbeat goes out every 8 s and may be held for 20: what takes less than 7 waited for no heartbeat.

import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;

public class HeldHeartbeats extends Checks {
  static class Slow extends Member {
    Slow(String group) {
      super(group, List.of("held"), "group.protocol", "classic", "session.timeout.ms", "60000", "heartbeat.interval.ms", "8000");
    }

    double metric(String name) {
      return consumer.metrics().entrySet().stream().filter(e -> e.getKey().name().equals(name) && e.getKey().group().equals("consumer-coordinator-metrics"))
          .mapToDouble(e -> ((Number) e.getValue().metricValue()).doubleValue()).findFirst().orElseThrow();
    }

    /** One was sent, none was answered. */
    boolean waitsForAnAnswer() { return metric("last-heartbeat-seconds-ago") >= 0 && metric("heartbeat-total") == 0; }
  }

  public static void main(String[] arguments) { run(arguments, HeldHeartbeats::steps); }

  static void steps() throws Exception {
    try (Admin admin = Admin.create(base())) {
      admin.createTopics(List.of(new NewTopic("held", 6, (short) 1))).all().get(10, TimeUnit.SECONDS);
    }
    Slow a = new Slow("pushed"), alone = new Slow("alone");
    await("all partitions", () -> a.held.size() == 6 && alone.held.size() == 6);
    await("heartbeats that wait", () -> a.waitsForAnAnswer() && alone.waitsForAnAnswer());
    Thread.sleep(200); // an answer that is not held would be here
    check(a.waitsForAnAnswer() && alone.waitsForAnAnswer(), "a heartbeat was answered at once");
    step("held");

    Slow b = new Slow("pushed");
    long took = await("3 and 3 partitions", () -> a.held.size() == 3 && b.held.size() == 3);
    check(took < 7_000, "3 and 3 partitions took " + took + " ms");
    step("pushed");

    CompletableFuture<Void> committed = new CompletableFuture<>();
    alone.orders.add(() -> {
      alone.consumer.commitSync(Map.of(new TopicPartition("held", 0), new OffsetAndMetadata(1)));
      committed.complete(null);
    });
    committed.get(4, TimeUnit.SECONDS);
    check(alone.metric("heartbeat-total") == 1, "the commit ended the wait");
    double[] ago = {0};
    await("the next heartbeat waits", () -> {
      double before = ago[0];
      ago[0] = alone.metric("last-heartbeat-seconds-ago");
      return ago[0] < before && alone.metric("heartbeat-total") == 1;
    });
    alone.leave();
    check(alone.assignments == 1, "it rejoined");
    step("neither a commit nor close() waits");
    a.leave();
    b.leave();
  }
}
