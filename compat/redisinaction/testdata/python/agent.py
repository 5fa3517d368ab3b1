"""Does what the Go tests ask for, with the code of redis_in_action.py: one line of JSON
in, one line of JSON out.
"""
import json
import sys
import threading

import redis

import redis_in_action as book


def main(port):
    def connect():
        return redis.Redis(port=port, decode_responses=True)

    conn = connect()

    def execute_later(queue, calls):
        return [book.execute_later(conn, queue, *call) for call in calls]

    def poll():
        """The poller runs until this program ends; it has no other end."""
        threading.Thread(target=book.poll_queue, args=(connect(),), daemon=True).start()

    def work(queues, count, timeout):
        """What a worker of the book does, with what it called."""
        called = []
        while len(called) < count:
            packed = conn.blpop(['queue:' + q for q in queues], timeout)
            if not packed:
                break
            called.append(json.loads(packed[1])[-2:])
        return called

    def rewrite(items):
        """Items as this side writes them after reading them."""
        return [json.dumps(json.loads(item)) for item in items]

    def acquire(name, timeout):
        return book.acquire_lock(conn, name, timeout)

    def release(name, identifier):
        return book.release_lock(conn, name, identifier)

    def contend(name, rounds):
        """Holds the lock many times. Says how often somebody else was inside, too."""
        overlaps = 0
        for _ in range(rounds):
            held = book.acquire_lock(conn, name, 60)
            if not held:
                raise RuntimeError('no lock within 60 s')
            if conn.incr('inside') != 1:
                overlaps += 1
            conn.incr('rounds')
            conn.decr('inside')
            if not book.release_lock(conn, name, held):
                raise RuntimeError('the lock was lost')
        return overlaps

    calls = {f.__name__: f for f in (execute_later, poll, work, rewrite, acquire, release, contend)}
    for line in sys.stdin:
        name, *args = json.loads(line)
        print(json.dumps(calls[name](*args)), flush=True)


main(int(sys.argv[1]))
