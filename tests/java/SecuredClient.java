// TLS, SASL and ACLs of Java's clients, for ClientDriver.java: `enter` opens a producer with the settings of a case, sends
// a record and reads it in a group; `send` uses the producer again.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class SecuredClient {
  static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
  static final String MODULES = "org.apache.kafka.common.security.";

  static Map<String, Object> settings(JsonNode o) {
    String mechanism = o.get("mechanism").asText();
    Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", o.get("bootstrap").asText(),
        "security.protocol", mechanism.isEmpty() ? "SSL" : "SASL_SSL",
        "ssl.truststore.type", "PEM", "ssl.truststore.location", o.get("ca").asText(),
        "metadata.max.age.ms", "1000"));
    if (mechanism.isEmpty()) {
      all.putAll(Map.of("ssl.keystore.type", "PEM", "ssl.keystore.location", o.get("own").asText()));
      return all;
    }
    if (mechanism.equals("OAUTHBEARER")) {
      String url = o.get("token_url").asText();
      System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
      all.putAll(Map.of("sasl.mechanism", mechanism, "sasl.oauthbearer.token.endpoint.url", url,
          "sasl.login.callback.handler.class", MODULES + "oauthbearer.OAuthBearerLoginCallbackHandler",
          "sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required clientId=\"" + o.get("user").asText()
              + "\" clientSecret=\"" + o.get("password").asText() + "\" scope=\"kafka\";"));
      return all;
    }
    String module = MODULES + (mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule");
    all.putAll(Map.of("sasl.mechanism", mechanism, "sasl.jaas.config", module + " required username=\""
        + o.get("user").asText() + "\" password=\"" + o.get("password").asText() + "\";"));
    return all;
  }

  static void enter(JsonNode o) throws Exception {
    int patience = 1000 * o.get("patience_s").asInt();
    Map<String, Object> writing = settings(o);
    writing.put("max.block.ms", patience);
    producers.put(o.get("name").asText(), new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer()));
    send(o);
    Map<String, Object> reading = settings(o);
    reading.putAll(Map.of("group.id", o.get("topic").asText(), "auto.offset.reset", "earliest"));
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(o.get("topic").asText()));
      for (long ends = System.nanoTime() + patience * 1_000_000L; System.nanoTime() < ends;)
        for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200)))
          if (r.value().equals(o.get("value").asText())) return;
    }
    throw new TimeoutException("nothing to read");
  }

  static void send(JsonNode o) throws Exception {
    ProducerRecord<String, String> record = new ProducerRecord<>(o.get("topic").asText(), o.get("value").asText());
    producers.get(o.get("name").asText()).send(record).get(o.get("patience_s").asInt(), TimeUnit.SECONDS);
  }
}
