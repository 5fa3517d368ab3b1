'use strict'
// Starts ActionHero 22 or 29: promises, response as the bare value.
if (process.env.VERSION === 'v22') {
  process.env.configChanges = JSON.stringify({
    general: {
      serverToken: process.env.TOKEN, channel: process.env.CHANNEL, rpcTimeout: Number(process.env.RPC_TIMEOUT)
    },
    servers: { web: { enabled: false }, websocket: { enabled: false } },
    logger: { loggers: [] }
  })
}

const { Process, api, id, redis, cache, chatRoom } = require('actionhero')
const agent = require(process.env.AGENT)

async function main () {
  await new Process().start()
  api.t = require(process.env.METHODS)
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
