-- Bodies first: what no list names cannot be taken.
write('HSET', bodies, fields)
write('HSET', options, extras)
write('HSET', unique, names)
write('ZADD', expiry, ends)
write('ZADD', scheduled, dues)
write('RPUSH', ready, entries)
