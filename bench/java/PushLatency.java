// For `python -m bench push`, what _push_members.py is for librdkafka: groups of Java consumers at their defaults.
// `java -cp 'lib/*' PushLatency.java TOPIC PARTITIONS MEMBERS ROUNDS GROUPS BOOTSTRAP...`; prints BOOTSTRAP ASSIGNOR join|leave|close MS.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class PushLatency {
  static String topic;
  static int partitions, members, rounds, groups;

  static Properties at(String bootstrap) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    return p;
  }

  /** Its members share the partitions; `changedAt` is when that last changed. */
  static class Group implements Callable<Void> {
    final String bootstrap, id, assignor;
    final Random random;
    final List<Member> present = new ArrayList<>();
    long changedAt;

    Group(String bootstrap, String assignor, int number) {
      this.bootstrap = bootstrap;
      this.assignor = assignor;
      id = assignor + "-java-" + number;
      random = new Random(id.hashCode());
    }

    public Void call() throws Exception {
      for (int i = 0; i < members; i++) present.add(new Member(this));
      settled();
      for (int round = 0; round < rounds; round++) {
        pause();
        Member newcomer = new Member(this);
        synchronized (this) { present.add(newcomer); }
        note("join", settled() - newcomer.began);
        pause();
        synchronized (this) { present.remove(newcomer); }
        long began = System.nanoTime();
        newcomer.stop = true;
        note("leave", settled() - began);
        newcomer.join();
        note("close", newcomer.closingTook);
      }
      for (Member member : present) member.stop = true;
      for (Member member : present) member.join();
      return null;
    }

    /** Longer than the time within which rebalances make a storm, and as wide as the heartbeat interval. */
    void pause() throws InterruptedException { Thread.sleep(3500 + random.nextInt(3000)); }

    void note(String what, long nanos) {
      System.out.printf(Locale.ROOT, "%s %s %s %.1f%n", bootstrap, assignor, what, nanos / 1e6);
    }

    synchronized long settled() throws InterruptedException {
      long deadline = System.nanoTime() + 60_000_000_000L;
      while (!shared()) {
        long left = (deadline - System.nanoTime()) / 1_000_000;
        if (left <= 0) throw new AssertionError(id + " not settled: " + present.stream().map(m -> m.held).toList());
        wait(left);
      }
      return changedAt;
    }

    boolean shared() {
      int share = partitions / present.size();
      Set<Integer> all = new HashSet<>();
      for (Member member : present) {
        if (member.held.size() != share) return false;
        all.addAll(member.held);
      }
      return all.size() == partitions;
    }
  }

  static class Member extends Thread implements ConsumerRebalanceListener {
    final Group group;
    final KafkaConsumer<byte[], byte[]> consumer;
    final Set<Integer> held = new TreeSet<>();
    final long began;
    volatile boolean stop;
    long closingTook;

    Member(Group group) {
      this.group = group;
      Properties p = at(group.bootstrap);
      p.put("group.id", group.id);
      if (group.assignor.startsWith("cooperative")) p.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
      consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
      began = System.nanoTime();
      consumer.subscribe(List.of(topic), this);
      start();
    }

    public void run() {
      while (!stop) consumer.poll(Duration.ofMillis(20));
      long closing = System.nanoTime();
      consumer.close();
      closingTook = System.nanoTime() - closing;
    }

    public void onPartitionsAssigned(Collection<TopicPartition> given) {
      synchronized (group) { given.forEach(p -> held.add(p.partition())); changed(); }
    }

    public void onPartitionsRevoked(Collection<TopicPartition> taken) {
      synchronized (group) { taken.forEach(p -> held.remove(p.partition())); changed(); }
    }

    void changed() {
      group.changedAt = System.nanoTime();
      group.notifyAll();
    }
  }

  /** Something to read and to commit: a record to each partition, now and then. */
  static void trickle(String bootstrap) {
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(at(bootstrap), new ByteArraySerializer(), new ByteArraySerializer())) {
      while (true) {
        Thread.sleep(100);
        for (int p = 0; p < partitions; p++) producer.send(new ProducerRecord<>(topic, p, null, new byte[1]));
      }
    } catch (InterruptedException end) { /* the program ends */ }
  }

  public static void main(String[] arguments) throws Exception {
    topic = arguments[0];
    partitions = Integer.parseInt(arguments[1]);
    members = Integer.parseInt(arguments[2]);
    rounds = Integer.parseInt(arguments[3]);
    groups = Integer.parseInt(arguments[4]);
    List<Group> all = new ArrayList<>();
    for (int i = 5; i < arguments.length; i++) {
      String bootstrap = arguments[i];
      Thread producer = new Thread(() -> trickle(bootstrap));
      producer.setDaemon(true);
      producer.start();
      for (String assignor : List.of("range", "cooperative-sticky"))
        for (int number = 0; number < groups; number++) all.add(new Group(bootstrap, assignor, number));
    }
    ExecutorService pool = Executors.newFixedThreadPool(all.size());
    for (Future<Void> done : pool.invokeAll(all)) done.get();
    System.exit(0);
  }
}
