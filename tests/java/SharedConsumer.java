// A consumer of Java's that commits what it has read before it polls again: `java -cp 'lib/*' SharedConsumer.java BOOTSTRAP
// GROUP TOPIC PROTOCOL [ASSIGNOR]`. Prints its partitions when they change and the values it reads; leaves when its input ends.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class SharedConsumer {
  static final SortedSet<Integer> held = new TreeSet<>();

  static void say() {
    System.out.println("owns " + held.stream().map(String::valueOf).collect(Collectors.joining(" ")));
  }

  static void change(boolean add, Collection<TopicPartition> partitions) {
    for (TopicPartition p : partitions) { if (add) held.add(p.partition()); else held.remove(p.partition()); }
    say();
  }

  public static void main(String[] args) throws Exception {
    Properties p = new Properties();
    p.putAll(Map.of("bootstrap.servers", args[0], "group.id", args[1], "group.protocol", args[3],
        "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
    if (args.length > 4) p.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + args[4]);
    AtomicBoolean stop = new AtomicBoolean();
    Thread input = new Thread(() -> {
      try { while (System.in.read() >= 0) { } } catch (Exception e) { }
      stop.set(true);
    });
    input.setDaemon(true);
    input.start();
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(args[2]), new ConsumerRebalanceListener() {
        public void onPartitionsAssigned(Collection<TopicPartition> given) { change(true, given); }
        public void onPartitionsRevoked(Collection<TopicPartition> taken) { change(false, taken); }
        public void onPartitionsLost(Collection<TopicPartition> taken) { System.out.println("lost " + taken); }
      });
      while (!stop.get()) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(20));
        for (ConsumerRecord<String, String> record : records) System.out.println("read " + record.value());
        if (!records.isEmpty()) consumer.commitSync();
      }
    }
  }
}
