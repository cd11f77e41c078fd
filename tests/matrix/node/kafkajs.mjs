// kafkajs: gzip is its own codec; users add the others, as its documentation says.

import { compress as zstdCompress, decompress as zstdDecompress, init as zstdInit } from '@bokuweb/zstd-wasm'
import { lz4Compress, lz4Decompress } from '@platformatic/wasm-utils'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { readFileSync } from 'node:fs'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4Compress(encoder.buffer),
  decompress: async buffer => lz4Decompress(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstdCompress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstdDecompress(buffer)),
})
await zstdInit()

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

export class KafkaJs {
  constructor(bootstrap) {
    this.kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
    this.producers = {}
    this.transactions = {}
  }

  async #admin(call) {
    const admin = this.kafka.admin()
    await admin.connect()
    try {
      return await call(admin)
    } finally {
      await admin.disconnect()
    }
  }

  async produce({ topic, partitions, first, count, codec, pad, idempotent }) {
    const producer = this.kafka.producer(idempotent ? { idempotent: true, maxInFlightRequests: 1 } : {})
    await producer.connect()
    const messages = Array.from({ length: count }, (_, i) => first + i).map(n => ({
      key: `k${n}`, value: `v${n}` + '.'.repeat(pad), partition: n % partitions, headers: { h: 'x' },
    }))
    await producer.send({ topic, messages, compression: CODECS[codec], acks: -1 })
    await producer.disconnect()
  }

  async #transactional(name, transactionalId) {
    if (!this.producers[name]) {
      const settings = { transactionalId, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 60_000 }
      this.producers[name] = this.kafka.producer(settings)
      await this.producers[name].connect()
    }
    return this.producers[name]
  }

  async transact({ name, id, topic, partitions, first, count, pad }) {
    const producer = await this.#transactional(name, id)
    this.transactions[name] = await producer.transaction()
    const messages = Array.from({ length: count }, (_, i) => first + i).map(n => ({
      key: `k${n}`, value: `v${n}` + '.'.repeat(pad), partition: n % partitions,
    }))
    await this.transactions[name].send({ topic, messages, acks: -1 })
  }

  async end({ name, commit }) {
    await (commit ? this.transactions[name].commit() : this.transactions[name].abort())
  }

  async copy({ name, id, group, source, topic, count, commit }) {
    const consumer = this.kafka.consumer({ groupId: group, rebalanceTimeout: 5000, readUncommitted: false })
    await consumer.connect()
    await consumer.subscribe({ topics: [source], fromBeginning: true })
    const read = []
    await new Promise((resolve, reject) => {
      const eachMessage = async ({ partition, message }) => {
        read.push({ partition, message })
        if (read.length === count) resolve()
      }
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
    })
    const transaction = await (await this.#transactional(name, id)).transaction()
    const messages = read.map(({ partition, message: { key, value } }) => ({ key, value, partition }))
    await transaction.send({ topic, messages, acks: -1 })
    const next = new Map(read.map(({ partition, message }) => [partition, String(Number(message.offset) + 1)]))
    const partitions = [...next].map(([partition, offset]) => ({ partition, offset }))
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
    await (commit ? transaction.commit() : transaction.abort())
    await consumer.disconnect()
  }

  async read({ topic, count, isolation }) {
    const records = []
    const readUncommitted = isolation === 'read_uncommitted'
    const consumer = this.kafka.consumer({ groupId: `read-${topic}`, rebalanceTimeout: 5000, readUncommitted })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, crash => reject(crash.payload.error))
      const eachMessage = async ({ partition, message }) => {
        records.push([partition, Number(message.offset), message.key.toString(), message.value.toString()])
        if (records.length === count) resolve()
      }
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
    })
    await consumer.disconnect()
    return { records }
  }

  async member(options, member, done) {
    const consumer = this.kafka.consumer({
      groupId: options.group,
      sessionTimeout: options.session_timeout_ms,
      heartbeatInterval: options.heartbeat_interval_ms,
      rebalanceTimeout: 10_000,
      metadataMaxAge: 1000,
      maxWaitTimeInMs: 200,
    })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => member.holds(payload.memberAssignment[options.topic] ?? []))
    consumer.on(consumer.events.REBALANCING, () => member.holds([]))
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) throw payload.error
    })
    await consumer.connect()
    const topic = options.pattern ? new RegExp(options.topic) : options.topic
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: true,
      eachBatch: async ({ batch, heartbeat }) => {
        member.read(batch.messages.map(m => [batch.partition, Number(m.offset), m.value.toString()]))
        const offset = String(Number(batch.lastOffset()) + 1)
        await member.commits(consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset }]))
        await heartbeat()
      },
    })
    await done
    await consumer.disconnect()
  }

  // With the settings of a case: a producer, which stays, and a record, which is read in a group.
  async enter({ name, topic, value, bootstrap, mechanism, user, password, ca, own, token, patience_s }) {
    const key = own && readFileSync(own)
    const kafka = new Kafka({
      clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: patience_s < 10 ? 2 : 5, initialRetryTime: 50 },
      ssl: { ca: [readFileSync(ca)], ...(own ? { key, cert: key } : {}) },
      ...(mechanism ? { sasl: { mechanism: mechanism.toLowerCase(), username: user, password, ...(token ? { oauthBearerProvider: async () => ({ value: token }) } : {}) } } : {}),
      reauthenticationThreshold: 1000, // its 10 seconds are longer than the session
    })
    this.producers[name] = kafka.producer()
    await this.producers[name].connect()
    await this.send({ name, topic, value })
    const consumer = kafka.consumer({ groupId: topic, rebalanceTimeout: 5000 })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, crash => reject(crash.payload.error))
      consumer.run({ eachMessage: async ({ message }) => resolve(message) }).catch(reject)
    })
    await consumer.disconnect()
  }

  async send({ name, topic, value }) {
    await this.producers[name].send({ topic, messages: [{ value }], acks: -1 })
  }

  async create_topic({ topic, partitions }) {
    await this.#admin(admin => admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }] }))
  }

  async topics() {
    return { topics: await this.#admin(admin => admin.listTopics()) }
  }

  async delete_topic({ topic }) {
    await this.#admin(admin => admin.deleteTopics({ topics: [topic] }))
  }

  async groups() {
    return { groups: (await this.#admin(admin => admin.listGroups())).groups.map(group => group.groupId) }
  }

  async describe({ group }) {
    const { groups: [found] } = await this.#admin(admin => admin.describeGroups([group]))
    return { state: found.state, members: found.members.length }
  }

  async offsets({ group, topic }) {
    const [found] = await this.#admin(admin => admin.fetchOffsets({ groupId: group, topics: [topic] }))
    return { offsets: Object.fromEntries(found.partitions.map(at => [at.partition, Number(at.offset)])) }
  }

  async set_offset({ group, topic, partition, offset }) {
    const partitions = [{ partition, offset: String(offset) }]
    await this.#admin(admin => admin.setOffsets({ groupId: group, topic, partitions }))
  }

  async delete_group({ group }) {
    await this.#admin(admin => admin.deleteGroups([group]))
  }
}
