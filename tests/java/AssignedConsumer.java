// A classic consumer of Java's: `java -cp 'lib/*' AssignedConsumer.java BOOTSTRAP GROUP TOPIC ASSIGNOR`. Prints its partitions
// whenever they change, and leaves when its input ends.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class AssignedConsumer {
  public static void main(String[] args) throws Exception {
    Properties p = new Properties();
    p.putAll(Map.of("bootstrap.servers", args[0], "group.id", args[1], "group.protocol", "classic",
        "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + args[3]));
    AtomicBoolean stop = new AtomicBoolean();
    Thread input = new Thread(() -> {
      try { while (System.in.read() >= 0) { } } catch (Exception e) { }
      stop.set(true);
    });
    input.setDaemon(true);
    input.start();
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(args[2]));
      String last = "";
      while (!stop.get()) {
        consumer.poll(Duration.ofMillis(20));
        String now = consumer.assignment().stream().map(TopicPartition::partition).sorted().map(String::valueOf).collect(Collectors.joining(" "));
        if (!now.equals(last)) System.out.println("owns " + now);
        last = now;
      }
    }
  }
}
