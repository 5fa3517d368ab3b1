'use strict'
// Starts ActionHero 12 or 14: callbacks, response as a sorted list of arguments.
const ActionHero = require('actionhero').actionheroPrototype
const agent = require(process.env.AGENT)

const promised = (f) => (...args) => new Promise((resolve, reject) => {
  f(...args, (error, ...values) => error ? reject(error) : resolve(values[0]))
})

const configChanges = {
  general: {
    id: process.env.ACTIONHERO_TITLE,
    serverToken: process.env.TOKEN,
    channel: process.env.CHANNEL,
    rpcTimeout: Number(process.env.RPC_TIMEOUT),
    developmentMode: false,
    paths: { pid: ['./pids'], log: ['./log'], plugin: [] }
  },
  logger: { transports: null },
  servers: { web: { enabled: false }, websocket: { enabled: false }, socket: { enabled: false } }
}
if (process.env.VERSION === 'v12') {
  configChanges.redis = { channel: process.env.CHANNEL, rpcTimeout: Number(process.env.RPC_TIMEOUT) }
}

new ActionHero().start({ configChanges }, (error, api) => {
  if (error) { console.error(error); process.exit(1) }
  api.t = {
    echo: (v, cb) => cb(v),
    first: (v, cb) => cb(null, v),
    fail: (v, cb) => cb(new Error(v)),
    failValue: (v, cb) => cb(new Error(v), { v: 1 }),
    none: (cb) => cb(),
    several: (cb) => cb(null, 'zz', 'aa', 10, 9),
    three: (cb) => cb(3),
    sum: (a, b, cb) => cb(null, a + b),
    mute: (cb) => {}
  }
  const call = (method, args, connection, cb) =>
    api.redis.doCluster(method, args, connection === undefined ? null : connection, cb)
  const cache = api.cache
  agent({
    id: api.id,
    api,
    redis: api.redis.client || api.redis.clients.client,
    callbacks: true,
    doCluster: (method, args, connection) => new Promise((resolve, reject) => {
      call(method, args, connection, (...values) => values[0] instanceof Error ? reject(values[0]) : resolve(values))
    }),
    tell: (method, args, connection) => call(method, args, connection, null),
    publish: (payload) => api.redis.publish(payload),
    chat: promised((room, message, cb) => api.chatRoom.broadcast({}, room, message, cb)),
    setLockName: (name) => { cache.lockName = name },
    cache: {
      lock: promised((key, ttl, cb) => cache.lock(key, ttl, cb)),
      unlock: promised((key, cb) => cache.unlock(key, cb)),
      // Without a start time it never gives up.
      checkLock: promised((key, retry, cb) => cache.checkLock(key, retry, cb, Date.now())),
      save: promised((key, value, ttl, cb) => cache.save(key, value, ttl === undefined ? null : ttl, cb)),
      destroy: promised((key, cb) => cache.destroy(key, cb)),
      load: (key, options) => new Promise((resolve, reject) => {
        const full = Object.assign({ retry: null }, options)
        cache.load(key, full, (error, value, expireTimestamp, createdAt, lastReadAt) => {
          error ? reject(error) : resolve({ value, expireTimestamp, createdAt, lastReadAt })
        })
      })
    }
  })
})
