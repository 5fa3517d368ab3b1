'use strict'
// Starts ActionHero 29: promises, response as the bare value.
const { Process, api, id, redis, cache, chatRoom } = require('actionhero')
const agent = require(process.env.AGENT)

async function main () {
  await new Process().start()
  api.t = {
    echo: async (v) => v,
    fail: async (v) => new Error(v),
    none: async () => {},
    nothing: async () => null,
    several: async () => [null, 'x'],
    object: async () => ({ a: 1, b: [2] }),
    three: async () => 3,
    sum: async (a, b) => a + b,
    mute: () => new Promise(() => {})
  }
  agent({
    id,
    api,
    redis: api.redis.clients.client,
    callbacks: false,
    doCluster: (method, args, connection) => redis.doCluster(method, args, connection, true),
    tell: (method, args, connection) => redis.doCluster(method, args, connection),
    publish: (payload) => redis.publish(payload),
    chat: (room, message) => api.chatRoom.broadcast({}, room, message),
    setLockName: (name) => cache.overrideLockName(name),
    cache
  })
}

main().catch((error) => { console.error(error); process.exit(1) })
