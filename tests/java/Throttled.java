// A producer and a consumer above their quotas: `Throttled BOOTSTRAP CLIENT_ID TOPIC` prints how long each was throttled
// by its own metrics. The topic has records, and the first of them are within the quota.

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class Throttled {
  static double value(Map<MetricName, ? extends Metric> metrics, String group, String name) {
    for (Map.Entry<MetricName, ? extends Metric> e : metrics.entrySet())
      if (e.getKey().group().equals(group) && e.getKey().name().equals(name) && !e.getKey().tags().containsKey("topic"))
        return ((Number) e.getValue().metricValue()).doubleValue();
    throw new NoSuchElementException(name);
  }

  public static void main(String[] args) throws Exception {
    Map<String, Object> all = Map.of("bootstrap.servers", args[0], "client.id", args[1]);
    TopicPartition partition = new TopicPartition(args[2], 0);
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(List.of(partition));
      consumer.seekToBeginning(List.of(partition));
      double throttled = Double.NaN;
      for (long ends = System.nanoTime() + 20_000_000_000L; !(throttled > 0) && System.nanoTime() < ends;) {
        consumer.poll(Duration.ofMillis(20));
        throttled = value(consumer.metrics(), "consumer-fetch-manager-metrics", "fetch-throttle-time-avg");
      }
      System.out.println("fetch " + throttled);
    }
    KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    producer.send(new ProducerRecord<>(args[2], 0, null, new byte[40_000])).get();
    for (String of : List.of("avg", "max"))
      System.out.println(of + " " + value(producer.metrics(), "producer-metrics", "produce-throttle-time-" + of));
    producer.close(Duration.ZERO);
  }
}
