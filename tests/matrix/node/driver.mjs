// Driver of the Node clients (../matrix_stage.py says what a driver is): kafkajs and @platformatic/kafka.

import { createRequire } from 'node:module'
import readline from 'node:readline'
import { KafkaJs } from './kafkajs.mjs'
import { Platformatic } from './platformatic.mjs'

const CLIENTS = { kafkajs: [KafkaJs, 'kafkajs'], platformatic: [Platformatic, '@platformatic/kafka'] }

export function say(what) {
  process.stdout.write(JSON.stringify(what) + '\n')
}

// What a consumer holds, told when it changes.
class Member {
  #held = null

  holds(partitions) {
    const held = [...partitions].sort((a, b) => a - b)
    if (this.#held?.join() !== held.join()) say({ assigned: held })
    this.#held = held
  }

  read(records) {
    if (records.length > 0) say({ records })
  }

  async commits(work) {
    try {
      await work
      say({ committed: true })
    } catch (error) {
      say({ error: String(error) })
    }
  }
}

async function version(name) {
  const main = createRequire(import.meta.url).resolve(name)
  const root = main.slice(0, main.lastIndexOf(`node_modules/${name}/`)) + `node_modules/${name}/package.json`
  const { readFile } = await import('node:fs/promises')
  return JSON.parse(await readFile(root)).version
}

const options = JSON.parse(process.argv[2])
const [Client, name] = CLIENTS[options.client]
const client = new Client(options.bootstrap)
const lines = readline.createInterface({ input: process.stdin })

if (options.group) {
  const done = (async () => {
    for await (const line of lines) if (line === 'close') return
  })()
  await client.member(options, new Member(), done)
  say({ closed: true })
} else {
  say({ version: await version(name) })
  for await (const line of lines) {
    const asked = JSON.parse(line)
    try {
      say({ done: (await client[asked.do](asked)) ?? {} })
    } catch (error) {
      say({ failed: String(error) + (error.errors ? ': ' + error.errors.map(String).join('; ') : '') })
    }
  }
}
process.exit(0)
