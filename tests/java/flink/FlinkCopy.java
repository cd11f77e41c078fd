// Copies the topic "lines" to "copies" with Flink, exactly once: `java -cp 'lib/*' FlinkCopy BOOTSTRAP CHECKPOINTS [FROM]`.
// Runs until it is killed. FROM is the folder of a checkpoint of an earlier run, to go on from.

import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.*;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class FlinkCopy {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.dir", arguments[1]);
    settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    settings.setString("restart-strategy.type", "fixed-delay");
    settings.setString("restart-strategy.fixed-delay.attempts", "100");
    settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
    if (arguments.length > 2) settings.setString("execution.state-recovery.path", arguments[2]);
    StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
    job.enableCheckpointing(300, CheckpointingMode.EXACTLY_ONCE);
    KafkaSource<String> lines = KafkaSource.<String>builder()
        .setBootstrapServers(arguments[0])
        .setTopics("lines")
        .setGroupId("copying")
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new SimpleStringSchema())
        .build();
    Properties producer = new Properties();
    producer.setProperty("transaction.timeout.ms", "600000");
    KafkaSink<String> copies = KafkaSink.<String>builder()
        .setBootstrapServers(arguments[0])
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .setTransactionalIdPrefix("copy")
        .setKafkaProducerConfig(producer)
        .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
            .setTopic("copies").setValueSerializationSchema(new SimpleStringSchema()).build())
        .build();
    job.fromSource(lines, WatermarkStrategy.noWatermarks(), "lines").sinkTo(copies);
    job.execute("copy");
  }
}
