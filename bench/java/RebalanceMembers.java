// Java consumers for `python -m bench rebalance`, like _rebalance_members.py for librdkafka: at their defaults, each in
// a thread, in a process that can be killed. The same commands on stdin, the same reports on stdout.
// `java -cp 'lib/*' RebalanceMembers.java BOOTSTRAP TOPIC`.

import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class RebalanceMembers {
  static String bootstrap, topic;
  static final ConcurrentLinkedQueue<String> said = new ConcurrentLinkedQueue<>();

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    topic = arguments[1];
    Thread telling = new Thread(RebalanceMembers::tellAll);
    telling.setDaemon(true);
    telling.start();
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = commands.readLine()) != null; ) {
      String[] words = line.trim().split(" ");
      switch (words[0]) {
        case "warm" -> {
          Member member = new Member(words[1], null);
          member.read.await();
          member.ends = true;
          member.join();
          say("warm");
        }
        case "join" -> new Member(words[1], words[2]);
        default -> throw new IllegalArgumentException(line);
      }
    }
    Runtime.getRuntime().halt(0);
  }

  static void say(String line) { said.add(line); }

  static void tellAll() {
    try {
      while (true) {
        Thread.sleep(20);
        StringBuilder lines = new StringBuilder();
        for (String line; (line = said.poll()) != null; ) lines.append(line).append('\n');
        if (lines.length() > 0) { System.out.print(lines); System.out.flush(); }
      }
    } catch (InterruptedException end) { /* the program ends */ }
  }

  static class Member extends Thread implements ConsumerRebalanceListener {
    final String group, name;
    final CountDownLatch read = new CountDownLatch(1);
    volatile boolean ends;

    /** Without a name it tells nothing. */
    Member(String group, String name) {
      this.group = group;
      this.name = name;
      setDaemon(true);
      start();
    }

    public void run() {
      Properties settings = new Properties();
      settings.put("bootstrap.servers", bootstrap);
      settings.put("group.id", group);
      settings.put("group.protocol", "consumer");
      var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
      tell("subscribed", Set.of());
      consumer.subscribe(List.of(topic), this);
      while (!ends) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) continue;
        tell("read", records.partitions());
        read.countDown();
      }
      consumer.close();
    }

    public void onPartitionsAssigned(Collection<TopicPartition> given) { if (!given.isEmpty()) tell("assigned", given); }

    public void onPartitionsRevoked(Collection<TopicPartition> taken) { tell("revoked", taken); }

    public void onPartitionsLost(Collection<TopicPartition> taken) { tell("lost", taken); }

    void tell(String what, Collection<TopicPartition> partitions) {
      if (name == null) return;
      String listed = partitions.stream().map(p -> "" + p.partition()).collect(Collectors.joining(","));
      say(what + " " + name + " " + System.nanoTime() + (listed.isEmpty() ? "" : " " + listed));
    }
  }
}
