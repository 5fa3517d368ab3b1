exports.DEFAULT = {
  routes: () => ({}),
  web: () => ({ enabled: false }),
  websocket: () => ({ enabled: false }),
  logger: () => ({ loggers: [] }),
  general: () => ({
    serverToken: process.env.TOKEN,
    channel: process.env.CHANNEL,
    rpcTimeout: Number(process.env.RPC_TIMEOUT)
  })
}
