// For each line of the input, a number of seconds: adds batches of jobs of 300 bytes with BullMQ's addBulk for that long,
// and prints jobs a second.
const { Queue } = require('bullmq')
const IORedis = require('ioredis')
const readline = require('readline')
const batch = Number(process.env.BATCH)
async function main () {
  const url = process.env.REDIS_URL
  const connection = new IORedis(url.startsWith('unix://') ? url.slice('unix://'.length) : url, { maxRetriesPerRequest: null })
  const queue = new Queue(process.env.SPACE, { connection })
  const jobs = Array.from({ length: batch }, () => ({ name: 'bench', data: 'x'.repeat(300) }))
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const span = Number(line)
    const start = process.hrtime.bigint()
    let n = 0
    let elapsed = 0
    while (elapsed < span) {
      await queue.addBulk(jobs)
      n += batch
      elapsed = Number(process.hrtime.bigint() - start) / 1e9
    }
    console.log(n / elapsed)
  }
  await queue.close()
  connection.disconnect()
}
main().catch((err) => { console.error(err); process.exit(1) })
