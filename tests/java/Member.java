import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

/**
 * A consumer in its own thread, which commits what it has read before it polls again. It uses the consumer protocol, unless
 * its settings say otherwise.
 */
public class Member extends Checks implements Runnable, ConsumerRebalanceListener {
  interface Subscribing { void subscribe(KafkaConsumer<String, String> consumer, ConsumerRebalanceListener listener); }

  final KafkaConsumer<String, String> consumer;
  final Set<TopicPartition> held = ConcurrentHashMap.newKeySet();
  final Queue<String> read = new ConcurrentLinkedQueue<>();
  final Queue<Runnable> orders = new ConcurrentLinkedQueue<>();
  final Thread thread = new Thread(this);
  volatile boolean stop;
  volatile long closingMs;
  volatile int assignments, lost;
  volatile Throwable failure;

  Member(String group, List<String> topics, Object... more) {
    this(group, (consumer, listener) -> consumer.subscribe(topics, listener), more);
  }

  Member(String group, Subscribing subscribing, Object... more) {
    Properties p = base("group.id", group, "group.protocol", "consumer", "auto.offset.reset", "earliest",
        "enable.auto.commit", "false", "allow.auto.create.topics", "false", "metadata.max.age.ms", "1000");
    p.putAll(base(more));
    consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    subscribing.subscribe(consumer, this);
    thread.start();
  }

  public void run() {
    try {
      while (!stop) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(50));
        records.forEach(record -> read.add(record.value()));
        for (Runnable order = orders.poll(); order != null; order = orders.poll()) order.run();
        if (!records.isEmpty()) consumer.commitSync();
      }
    } catch (Throwable t) { failure = t; }
    long began = System.nanoTime();
    consumer.close();
    closingMs = (System.nanoTime() - began) / 1_000_000;
  }

  public void onPartitionsAssigned(Collection<TopicPartition> given) { held.addAll(given); assignments++; }
  public void onPartitionsRevoked(Collection<TopicPartition> taken) { held.removeAll(taken); }
  public void onPartitionsLost(Collection<TopicPartition> taken) { held.removeAll(taken); lost++; }

  void leave() throws Exception {
    stop = true;
    thread.join(30_000);
    check(!thread.isAlive(), "closed");
    if (failure != null) throw new AssertionError("member failed", failure);
    check(closingMs < 4000, "close() took " + closingMs + " ms");
    check(lost == 0, "partitions were lost");
  }
}
