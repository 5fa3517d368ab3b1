package main

import (
	"context"
	"errors"
	"time"

	"example.com/app/stock"
	"github.com/luatomic/luatomic/lua"
	"github.com/redis/go-redis/v9"
)

// lease is a user's own lease.
type lease struct{ key, token string }

func (l lease) GuardKey() string   { return l.key }
func (l lease) GuardToken() string { return l.token }

// reserve takes 7 pieces of 10, and one more in a batch.
func reserve(c *redis.Client, item string) {
	ctx := context.Background()
	notes := []stock.ReserveNote{{Author: "ann", Text: []byte{0, '}', 0xff}}}
	p := stock.ReserveParams{Item: item, N: 7, Notes: notes}
	got, err := stock.Reserve(ctx, c, p)
	check(err)
	same("reserved", stock.ReserveResult{Left: 3, Notes: notes}, got)
	_, err = stock.Reserve(ctx, c, p)
	same("sold out", true, errors.Is(err, stock.ErrReserveSoldOut))
	_, err = stock.Reserve(ctx, c, stock.ReserveParams{Item: item})
	same("no pieces", true, errors.Is(err, lua.ErrOutOfRange))

	b := lua.NewBatch(c)
	f := stock.ReserveIn(b, stock.ReserveParams{Item: item, N: 1})
	check(b.Exec(ctx))
	got, err = f.Get()
	check(err)
	same("left in a batch", int64(2), got.Left)
}

// restock writes while the user holds a lease, and not once it is gone.
func restock(c *redis.Client, item string) {
	ctx := context.Background()
	shelf := lease{"shelf:{" + item + "}", "ann"}
	end := time.Now().Add(time.Minute).UnixMilli()
	check(c.ZAdd(ctx, shelf.key, redis.Z{Member: shelf.token, Score: float64(end)}).Err())
	check(lua.Preload(ctx, c, &stock.RestockScript))
	known, err := c.ScriptExists(ctx, stock.RestockSHA, stock.RestockGuardedSHA).Result()
	check(err)
	same("preloaded", []bool{true, true}, known)
	guard := lua.Guard(c, shelf)
	check(stock.Restock(ctx, guard, stock.RestockParams{Item: item, N: 50}))
	_, err = stock.Reserve(ctx, guard, stock.ReserveParams{Item: item, N: 1})
	same("no guard", true, errors.Is(err, lua.ErrNoGuard))

	check(c.Del(ctx, shelf.key).Err())
	b := lua.NewBatch(guard)
	done := stock.RestockIn(b, stock.RestockParams{Item: item})
	same("fenced", true, errors.Is(b.Exec(ctx), lua.ErrFenced))
	_, err = done.Get()
	same("refusal", "refused: FENCED the lease is not held with this token (guarded restock)", err.Error())
	same("stock", "50", c.Get(ctx, "stock:{"+item+"}").Val())
}
