// Counts words with Kafka Streams: `java -cp 'lib/*' StreamsCount.java BOOTSTRAP STATE_FOLDER`. Runs until it is killed.

import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.Stores;

public class StreamsCount {
  public static void main(String[] arguments) {
    Properties p = new Properties();
    p.putAll(Map.of("application.id", "counting", "bootstrap.servers", arguments[0], "state.dir", arguments[1],
        "default.key.serde", Serdes.StringSerde.class.getName(), "default.value.serde", Serdes.StringSerde.class.getName(),
        "processing.guarantee", "at_least_once", "commit.interval.ms", "200", "statestore.cache.max.bytes", "0",
        "auto.offset.reset", "earliest"));
    p.put("session.timeout.ms", "3000");
    p.put("heartbeat.interval.ms", "500");
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("words")
        .flatMapValues(line -> List.of(line.split(" ")))
        .groupBy((key, word) -> word)
        .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("store")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
        .toStream().mapValues(count -> count.toString())
        .to("counts");
    new KafkaStreams(builder.build(), p).start();
  }
}
