// Java's consumers whose heartbeats the server holds: `java -cp 'lib/*' HeldHeartbeats.java BOOTSTRAP`. Prints a line a step.
// A heartbeat goes out every 8 s and may be held for 20: what takes less than 7 waited for no heartbeat.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class HeldHeartbeats {
  static String bootstrap;

  static class Member implements Runnable, ConsumerRebalanceListener {
    final KafkaConsumer<byte[], byte[]> consumer;
    final Set<Integer> held = ConcurrentHashMap.newKeySet();
    final Queue<Runnable> orders = new ConcurrentLinkedQueue<>();
    final Thread thread = new Thread(this);
    volatile boolean stop;
    volatile long closingMs;
    volatile Throwable failure;
    int assignments;

    Member(String group) {
      Properties p = new Properties();
      p.put("bootstrap.servers", bootstrap);
      p.put("group.id", group);
      p.put("session.timeout.ms", "60000");
      p.put("heartbeat.interval.ms", "8000");
      p.put("enable.auto.commit", "false");
      consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
      consumer.subscribe(List.of("held"), this);
      thread.start();
    }

    public void run() {
      try {
        while (!stop) {
          consumer.poll(Duration.ofMillis(50));
          for (Runnable order = orders.poll(); order != null; order = orders.poll()) order.run();
        }
        long began = System.nanoTime();
        consumer.close();
        closingMs = (System.nanoTime() - began) / 1_000_000;
      } catch (Throwable t) { failure = t; }
    }

    public void onPartitionsAssigned(Collection<TopicPartition> given) { assignments++; given.forEach(p -> held.add(p.partition())); }
    public void onPartitionsRevoked(Collection<TopicPartition> taken) { taken.forEach(p -> held.remove(p.partition())); }

    double metric(String name) {
      return consumer.metrics().entrySet().stream().filter(e -> e.getKey().name().equals(name) && e.getKey().group().equals("consumer-coordinator-metrics"))
          .mapToDouble(e -> ((Number) e.getValue().metricValue()).doubleValue()).findFirst().orElseThrow();
    }

    /** One was sent, none was answered. */
    boolean waitsForAnAnswer() { return metric("last-heartbeat-seconds-ago") >= 0 && metric("heartbeat-total") == 0; }

    void leave() throws Exception {
      stop = true;
      thread.join(10_000);
      if (failure != null) throw new AssertionError("member failed", failure);
      check(!thread.isAlive(), "not closed");
    }
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  interface Condition { boolean holds() throws Exception; }

  static void await(int seconds, String what, Condition condition) throws Exception {
    long deadline = System.nanoTime() + seconds * 1_000_000_000L;
    while (!condition.holds()) {
      check(System.nanoTime() < deadline, "not within " + seconds + " s: " + what);
      Thread.sleep(10);
    }
  }

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap))) {
      admin.createTopics(List.of(new NewTopic("held", 6, (short) 1))).all().get(10, TimeUnit.SECONDS);
    }
    try {
      Member a = new Member("pushed"), alone = new Member("alone");
      await(20, "all partitions", () -> a.held.size() == 6 && alone.held.size() == 6);
      await(20, "heartbeats that wait", () -> a.waitsForAnAnswer() && alone.waitsForAnAnswer());
      Thread.sleep(200); // an answer that is not held would be here
      check(a.waitsForAnAnswer() && alone.waitsForAnAnswer(), "a heartbeat was answered at once");
      System.out.println("ok held");

      Member b = new Member("pushed");
      await(7, "3 and 3 partitions", () -> a.held.size() == 3 && b.held.size() == 3);
      System.out.println("ok pushed");

      CompletableFuture<Void> committed = new CompletableFuture<>();
      alone.orders.add(() -> {
        alone.consumer.commitSync(Map.of(new TopicPartition("held", 0), new OffsetAndMetadata(1)));
        committed.complete(null);
      });
      committed.get(4, TimeUnit.SECONDS);
      check(alone.metric("heartbeat-total") == 1, "the commit ended the wait");
      double[] ago = {0};
      await(20, "the next heartbeat waits", () -> {
        double before = ago[0];
        ago[0] = alone.metric("last-heartbeat-seconds-ago");
        return ago[0] < before && alone.metric("heartbeat-total") == 1;
      });
      alone.leave();
      check(alone.closingMs < 4000, "close() took " + alone.closingMs + " ms");
      check(alone.assignments == 1, "it rejoined");
      System.out.println("ok neither a commit nor close() waits");
      a.leave();
      b.leave();
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
    System.exit(0);
  }
}
