'use strict'
// Answers requests, one JSON object a line, with what this ActionHero process does.
const readline = require('readline')

function say (v) { process.stdout.write(JSON.stringify(v) + '\n') }
function sleep (ms) { return new Promise((resolve) => setTimeout(resolve, ms)) }

// node: {id, api, redis, cache, callbacks, setLockName}; cache has the functions of api.cache as promises.
module.exports = function agent (node) {
  const received = []
  const handlers = node.api.redis.subscriptionHandlers
  handlers.custom = (message) => { received.push(message) }
  const chat = handlers.chat
  handlers.chat = (message) => { received.push(message); return chat(message) }

  // contend takes the lock and gives it back, rounds times, and counts whoever was inside with it.
  async function contend (r) {
    let overlaps = 0
    for (let n = 0; n < r.rounds;) {
      if (!await node.cache.lock(r.key, r.ttl)) { await sleep(1); continue }
      if (await node.redis.incr(r.witness) !== 1) overlaps++
      await sleep(1)
      await node.redis.decr(r.witness)
      await node.cache.unlock(r.key)
      n++
    }
    return { overlaps }
  }

  const ops = {
    async call (r) { return { response: await node.doCluster(r.method, r.args, r.connection) } },
    async tell (r) { node.tell(r.method, r.args, r.connection); return {} },
    async calls (r) {
      let wrong = 0
      const one = async (i) => {
        const got = await node.doCluster(r.method, [r.args[0], i], r.connection).catch((e) => String(e))
        if (JSON.stringify(got) !== JSON.stringify(node.callbacks ? [i] : i)) wrong++
      }
      for (let i = 0; i < r.n; i += 20) {
        await Promise.all(Array.from({ length: Math.min(20, r.n - i) }, (_, k) => one(i + k)))
      }
      return { wrong }
    },
    async connect (r) {
      node.api.connections.connections[r.connection] = { id: r.connection, rooms: [], canChat: false }
      return {}
    },
    async name (r) { node.setLockName(r.name); return {} },
    async publish (r) { await node.redis.publish(r.channel, r.text); return {} },
    async message (r) { await node.publish(r.payload); return {} },
    async chat (r) { await node.chat(r.room, r.message); return {} },
    async received () { return { received: received.splice(0) } },
    async lock (r) { return { ok: await node.cache.lock(r.key, r.ttl) } },
    async unlock (r) { return { ok: await node.cache.unlock(r.key) } },
    async check (r) { return { ok: await node.cache.checkLock(r.key, r.retry) } },
    async save (r) { return { ok: await node.cache.save(r.key, r.value, r.ttl) } },
    async load (r) { return { item: await node.cache.load(r.key, r.options || {}) } },
    async destroy (r) { return { ok: await node.cache.destroy(r.key) } },
    contend
  }

  readline.createInterface({ input: process.stdin }).on('line', async (line) => {
    const request = JSON.parse(line)
    try {
      say(await ops[request.op](request))
    } catch (e) {
      say({ error: e.message })
    }
  }).on('close', () => process.exit(0))
  say({ up: node.id })
}
