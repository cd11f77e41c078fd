// Java consumers for `python -m bench rebalance`, like `members` in _librdkafka.py: at their defaults, each in a thread,
// in a process that can be killed. The same commands on stdin, the same reports on stdout.
// `java -cp 'lib/*' RebalanceMembers.java BOOTSTRAP TOPIC`.

import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class RebalanceMembers {
  static final ConcurrentLinkedQueue<String> said = new ConcurrentLinkedQueue<>();
  static final Set<String> joined = ConcurrentHashMap.newKeySet();

  public static void main(String[] arguments) throws Exception {
    start(RebalanceMembers::tellAll);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = commands.readLine()) != null; ) {
      String[] words = line.trim().split(" ");
      switch (words[0]) {
        case "join" -> {
          joined.add(words[2]);
          start(() -> consume(arguments[0], arguments[1], words[1], words[2]));
        }
        case "leave" -> joined.remove(words[1]);
        default -> throw new IllegalArgumentException(line);
      }
    }
    Runtime.getRuntime().halt(0);
  }

  static void start(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    thread.start();
  }

  static void consume(String bootstrap, String topic, String group, String name) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("group.id", group);
    settings.put("group.protocol", "consumer");
    var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    said.add(name + " " + System.nanoTime());
    consumer.subscribe(List.of(topic));
    while (joined.contains(name)) {
      ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
      if (records.isEmpty()) continue;
      String read = records.partitions().stream().map(p -> "" + p.partition()).collect(Collectors.joining(","));
      said.add(name + " " + System.nanoTime() + " " + read);
    }
    consumer.close();
  }

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
}
