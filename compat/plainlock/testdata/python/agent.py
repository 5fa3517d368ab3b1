"""Takes locks with redis-py's Lock for the test: one line of JSON in, one line of JSON out. The argument is the URL."""
import json
import sys

import redis
from redis.exceptions import LockError


class Agent:
    def __init__(self, url):
        self.redis = redis.Redis.from_url(url)
        self.lock = None

    def acquire(self, q):
        self.lock = self.redis.lock(q["key"], timeout=q["ttl"] / 1000)
        return {"ok": self.lock.acquire(blocking=False)}

    def release(self, _):
        try:
            self.lock.release()
        except LockError:
            return {"ok": False}
        return {"ok": True}

    def sections(self, q):
        """Enters and leaves the lock n times and counts how often somebody else was inside."""
        overlaps = 0
        for _ in range(q["n"]):
            with self.redis.lock(q["key"], timeout=60, sleep=0.005):
                if self.redis.incr(q["count"] + ":inside") != 1:
                    overlaps += 1
                self.redis.incr(q["count"])
                self.redis.decr(q["count"] + ":inside")
        return {"ok": True, "overlaps": overlaps}


agent = Agent(sys.argv[1])
for line in sys.stdin:
    question = json.loads(line)
    try:
        reply = getattr(agent, question["op"])(question)
    except Exception as fault:  # the test shows it
        reply = {"error": repr(fault)}
    print(json.dumps(reply), flush=True)
