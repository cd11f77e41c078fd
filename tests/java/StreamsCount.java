// Counts words with Kafka Streams: `java -cp 'lib/*' StreamsCount.java BOOTSTRAP STATE_FOLDER GUARANTEE`. Runs until it is
// killed. A thread that fails is replaced.

import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.Stores;

public class StreamsCount {
  public static void main(String[] arguments) {
    Properties p = new Properties();
    p.putAll(Map.of("application.id", "counting", "bootstrap.servers", arguments[0], "state.dir", arguments[1],
        "default.key.serde", Serdes.StringSerde.class.getName(), "default.value.serde", Serdes.StringSerde.class.getName(),
        "processing.guarantee", arguments[2], "commit.interval.ms", "200", "statestore.cache.max.bytes", "0",
        "auto.offset.reset", "earliest"));
    p.put("session.timeout.ms", "3000");
    p.put("heartbeat.interval.ms", "500");
    if (arguments[2].startsWith("exactly_once")) p.put("producer.transaction.timeout.ms", "5000"); // of one that was killed
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("words")
        .flatMapValues(line -> List.of(line.split(" ")))
        .groupBy((key, word) -> word)
        .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("store")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
        .toStream().mapValues(count -> count.toString())
        .to("counts");
    KafkaStreams streams = new KafkaStreams(builder.build(), p);
    streams.setUncaughtExceptionHandler(failure -> StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD);
    streams.start();
  }
}
