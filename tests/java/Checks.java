// What the checks of Java's clients share. run_java.py starts them as `java -cp … NAME BOOTSTRAP`; they print a line a step.

import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Checks {
  static String bootstrap;

  interface Condition { boolean holds() throws Exception; }
  interface Steps { void run() throws Exception; }

  /** Ends the process: with 1, and the failure on its standard error, where a step fails. */
  static void run(String[] arguments, Steps steps) {
    bootstrap = arguments[0];
    try {
      steps.run();
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
    System.exit(0);
  }

  static void step(String name) { System.out.println("ok " + name); }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  /** Returns the milliseconds that it took. */
  static long await(String what, Condition condition) throws Exception {
    long began = System.nanoTime();
    while (!condition.holds()) {
      check(System.nanoTime() - began < 40_000_000_000L, "not in time: " + what);
      Thread.sleep(5);
    }
    return (System.nanoTime() - began) / 1_000_000;
  }

  static Properties base(Object... pairs) {
    Properties p = new Properties();
    p.put("bootstrap.servers", bootstrap);
    for (int i = 0; i < pairs.length; i += 2) p.put(pairs[i], pairs[i + 1].toString());
    return p;
  }

  static void produce(String topic, int partitions, int first, int count, Object... more) throws Exception {
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(base(more), new StringSerializer(), new StringSerializer())) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int i = first; i < first + count; i++) sent.add(producer.send(new ProducerRecord<>(topic, i % partitions, null, "v" + i)));
      for (Future<RecordMetadata> f : sent) f.get(20, TimeUnit.SECONDS);
    }
  }
}
