// Takes locks with redlock for the test: one line of JSON in, one line of JSON out. The arguments are the folder with
// node_modules and the URL of the server.
const [modules, url] = process.argv.slice(2);
const load = (name) => require(require.resolve(name, { paths: [modules] }));
const Redis = load("ioredis");
const Redlock = load("redlock");

const redis = new Redis(url);
const once = new Redlock([redis], { retryCount: 0 });
const patient = new Redlock([redis], { retryCount: 10000, retryDelay: 5, retryJitter: 5 });
let lock;

const agent = {
  async acquire(q) {
    try {
      lock = await once.lock(q.key, q.ttl);
      return { ok: true };
    } catch (e) {
      if (e.name === "LockError") return { ok: false };
      throw e;
    }
  },
  async release() {
    try {
      await lock.unlock();
      return { ok: true };
    } catch (e) {
      if (e.name === "LockError") return { ok: false };
      throw e;
    }
  },
  // Enters and leaves the lock n times and counts how often somebody else was inside.
  async sections(q) {
    let overlaps = 0;
    for (let i = 0; i < q.n; i++) {
      const held = await patient.lock(q.key, 60000);
      if ((await redis.incr(q.count + ":inside")) !== 1) overlaps++;
      await redis.incr(q.count);
      await redis.decr(q.count + ":inside");
      await held.unlock();
    }
    return { ok: true, overlaps };
  },
};

let turn = Promise.resolve();
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  turn = turn.then(async () => {
    const q = JSON.parse(line);
    const reply = await agent[q.op](q).catch((e) => ({ error: String(e) }));
    process.stdout.write(JSON.stringify(reply) + "\n");
  });
}).on("close", () => turn.then(() => process.exit(0)));
