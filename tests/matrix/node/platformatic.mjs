// @platformatic/kafka.

import { Admin, Consumer, FetchIsolationLevels, MessagesStreamFallbackModes, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const SOON_MS = 50

export class Platformatic {
  constructor(bootstrap) {
    this.base = { clientId: 'platformatic', bootstrapBrokers: [bootstrap], metadataMaxAge: 500 }
    this.producers = {}
    this.transactions = {}
  }

  async #admin(call) {
    const admin = new Admin(this.base)
    try {
      return await call(admin)
    } finally {
      await admin.close()
    }
  }

  async produce({ topic, partitions, first, count, codec, pad, idempotent }) {
    const producer = new Producer({ ...this.base, serializers: stringSerializers, idempotent: Boolean(idempotent), retryDelay: 100 })
    const messages = Array.from({ length: count }, (_, i) => first + i).map(n => ({
      topic, key: `k${n}`, value: `v${n}` + '.'.repeat(pad), partition: n % partitions, headers: { h: 'x' },
    }))
    try {
      await producer.send({ messages, compression: codec, acks: -1 })
    } finally {
      await producer.close()
    }
  }

  #transactional(name, transactionalId) {
    this.producers[name] ??= new Producer({ ...this.base, serializers: stringSerializers, idempotent: true, transactionalId })
    return this.producers[name]
  }

  async transact({ name, id, topic, partitions, first, count, pad }) {
    this.transactions[name] = await this.#transactional(name, id).beginTransaction()
    const messages = Array.from({ length: count }, (_, i) => first + i).map(n => ({
      topic, key: `k${n}`, value: `v${n}` + '.'.repeat(pad), partition: n % partitions,
    }))
    await this.transactions[name].send({ messages, acks: -1 })
  }

  async end({ name, commit }) {
    await (commit ? this.transactions[name].commit() : this.transactions[name].abort())
  }

  async copy({ name, id, group, source, topic, count, commit }) {
    const consumer = new Consumer({ ...this.base, groupId: group, deserializers: stringDeserializers, maxWaitTime: 200 })
    const stream = await consumer.consume({
      topics: [source],
      autocommit: false,
      mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST,
    })
    const read = []
    for await (const message of stream) {
      read.push(message)
      if (read.length === count) break
    }
    const transaction = await this.#transactional(name, id).beginTransaction()
    const messages = read.map(({ key, value, partition }) => ({ topic, key, value, partition }))
    await transaction.send({ messages, acks: -1 })
    await transaction.addConsumer(consumer)
    for (const message of new Map(read.map(message => [message.partition, message])).values()) await transaction.addOffset(message)
    await (commit ? transaction.commit() : transaction.abort())
    await consumer.close(true)
  }

  async read({ topic, count, isolation }) {
    const isolationLevel = FetchIsolationLevels[isolation.toUpperCase()]
    const consumer = new Consumer({ ...this.base, groupId: `read-${topic}`, deserializers: stringDeserializers, isolationLevel })
    const stream = await consumer.consume({ topics: [topic], autocommit: false, mode: MessagesStreamModes.EARLIEST })
    const records = []
    for await (const message of stream) {
      records.push([message.partition, Number(message.offset), message.key, message.value])
      if (records.length === count) break
    }
    await consumer.close(true)
    return { records }
  }

  async member(options, member, done) {
    const ofProtocol = options.protocol === 'consumer'
      ? { groupProtocol: 'consumer' }
      : { sessionTimeout: options.session_timeout_ms, heartbeatInterval: options.heartbeat_interval_ms, rebalanceTimeout: Math.max(10_000, options.session_timeout_ms) }
    const consumer = new Consumer({
      ...this.base,
      ...ofProtocol,
      ...(options.instance ? { groupInstanceId: options.instance } : {}),
      clientId: options.name,
      groupId: options.group,
      deserializers: stringDeserializers,
      maxWaitTime: 200,
    })
    const look = setInterval(() => {
      const of = (consumer.assignments ?? []).filter(each => each.topic === options.topic)
      member.holds(of.flatMap(each => each.partitions))
    }, SOON_MS)
    const stream = await consumer.consume({
      topics: [options.topic],
      autocommit: false,
      mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST,
    })
    let read = []
    stream.on('data', message => read.push(message))
    stream.on('error', error => {
      console.error(error)
      process.exit(1)
    })
    const commit = async () => {
      const messages = read
      read = []
      const last = new Map(messages.map(message => [message.partition, message]))
      member.read(messages.map(message => [message.partition, Number(message.offset), message.value]))
      const offsets = [...last.values()].map(({ topic, partition, offset }) => ({ topic, partition, offset: offset + 1n, leaderEpoch: 0 }))
      if (offsets.length > 0) await member.commits(consumer.commit({ offsets }))
    }
    let closing = false
    done.then(() => { closing = true })
    while (!closing) {
      await commit()
      await new Promise(resolve => setTimeout(resolve, SOON_MS))
    }
    clearInterval(look)
    await stream.close()
    await consumer.close()
  }

  async create_topic({ topic, partitions }) {
    await this.#admin(admin => admin.createTopics({ topics: [topic], partitions, replicas: 1 }))
  }

  async topics() {
    return { topics: await this.#admin(admin => admin.listTopics()) }
  }

  async delete_topic({ topic }) {
    await this.#admin(admin => admin.deleteTopics({ topics: [topic] }))
  }

  async groups() {
    return { groups: [...(await this.#admin(admin => admin.listGroups())).keys()] }
  }

  async describe({ group }) {
    const found = (await this.#admin(admin => admin.describeGroups({ groups: [group] }))).get(group)
    return { state: found.state, members: found.members.size }
  }

  async offsets({ group, topic }) {
    const [found] = await this.#admin(admin => admin.listConsumerGroupOffsets({ groups: [group] }))
    const { partitions } = found.topics.find(each => each.name === topic)
    return { offsets: Object.fromEntries(partitions.map(at => [at.partitionIndex, Number(at.committedOffset)])) }
  }

  async set_offset({ group, topic, partition, offset }) {
    const topics = [{ name: topic, partitionOffsets: [{ partition, offset: BigInt(offset) }] }]
    await this.#admin(admin => admin.alterConsumerGroupOffsets({ groupId: group, topics }))
  }

  async delete_offset({ group, topic, partition }) {
    const topics = [{ name: topic, partitionIndexes: [partition] }]
    await this.#admin(admin => admin.deleteConsumerGroupOffsets({ groupId: group, topics }))
  }

  async delete_group({ group }) {
    await this.#admin(admin => admin.deleteGroups({ groups: [group] }))
  }
}
