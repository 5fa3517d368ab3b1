'use strict'
// Starts ActionHero 18: promises, response as the bare value, requestId.
const { Process } = require('actionhero')
const agent = require(process.env.AGENT)
const methods = require(process.env.METHODS)

async function main () {
  const api = await new Process().start({
    configChanges: {
      general: {
        id: process.env.ACTIONHERO_TITLE,
        serverToken: process.env.TOKEN,
        channel: process.env.CHANNEL,
        rpcTimeout: Number(process.env.RPC_TIMEOUT),
        developmentMode: false,
        paths: { pid: ['./pids'], log: ['./log'], plugin: [] }
      },
      logger: { transports: [] },
      servers: { web: { enabled: false }, websocket: { enabled: false }, socket: { enabled: false } }
    }
  })
  api.t = methods
  agent({
    id: api.id,
    api,
    redis: api.redis.clients.client,
    callbacks: false,
    doCluster: (method, args, connection) => api.redis.doCluster(method, args, connection, true),
    tell: (method, args, connection) => api.redis.doCluster(method, args, connection),
    publish: (payload) => api.redis.publish(payload),
    chat: (room, message) => api.chatRoom.broadcast({}, room, message),
    setLockName: (name) => { api.cache.lockName = name },
    cache: api.cache
  })
}

main().catch((error) => { console.error(error); process.exit(1) })
