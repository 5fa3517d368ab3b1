// Roundtrip calls the functions of a user's scripts, sends a value of every type through a server, and prints what
// differs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"example.com/app/gen"
	"github.com/luatomic/luatomic/lua"
	"github.com/redis/go-redis/v9"
)

func main() {
	opts, err := redis.ParseURL(os.Args[1])
	check(err)
	for _, protocol := range []int{2, 3} {
		opts.Protocol = protocol
		c := redis.NewClient(opts)
		everyType(c, os.Args[2])
		tables(c, os.Args[2])
		elements(c, os.Args[2])
		reserve(c, fmt.Sprint(os.Args[2], protocol))
		restock(c, fmt.Sprint(os.Args[2], protocol))
		check(c.Close())
	}
	fmt.Println("done")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func same(what string, want, got any) {
	if !reflect.DeepEqual(want, got) {
		fmt.Printf("%s: want %#v, got %#v\n", what, want, got)
	}
}

func everyType(c *redis.Client, key string) {
	at := time.UnixMilli(1_700_000_000_123)
	p := gen.EveryTypeParams{
		Store: key, AInt: -5, BInt: -1 << 40, CUint: 10, DUint: 1<<64 - 1, EBool: true, FFloat: 0.1, GString: "é\x00", HBytes: []byte{0, 0xff, '\r', '\n'},
		IMs: 1500 * time.Millisecond, JS: time.Hour, KAt: at, LAt: at.Truncate(time.Second), MMode: gen.EveryTypeMModeSlow,
		NInt: lua.Some[int64](7), OString: lua.Some("x"), RMode: lua.Some(gen.EveryTypeRModeOff),
	}
	want := gen.EveryTypeResult{
		AInt: p.AInt, DUint: p.DUint, EBool: true, FFloat: 0.1, GString: p.GString, HBytes: p.HBytes, IMs: p.IMs, JS: p.JS, KAt: p.KAt,
		LAt: p.LAt, MMode: p.MMode, NInt: p.NInt, OString: p.OString, RMode: p.RMode,
		List: []string{p.GString, "b", "c"}, Flags: []bool{true, false}, Holes: []lua.Opt[int64]{lua.Some[int64](1), {}},
		Modes: []gen.EveryTypeMode{gen.EveryTypeModeY, gen.EveryTypeModeX},
	}
	got, err := gen.EveryType(context.Background(), c, p)
	check(err)
	same("every type", want, got)

	p.NInt, p.OString, p.RMode = lua.Opt[int64]{}, lua.Opt[string]{}, lua.Opt[gen.EveryTypeRMode]{}
	want.NInt, want.OString, want.RMode = p.NInt, p.OString, p.RMode
	got, err = gen.EveryType(context.Background(), c, p)
	check(err)
	same("absent values", want, got)
	check(c.Del(context.Background(), key).Err())
}

func tables(c *redis.Client, key string) {
	ctx := context.Background()
	entries := []gen.SwapJobsEntry{
		{ID: "a", State: gen.SwapJobsStateA, At: lua.Some(time.UnixMilli(5))},
		{ID: "b", State: gen.SwapJobsStateB},
	}
	swapped, err := gen.SwapJobs(ctx, c, gen.SwapJobsParams{Jobs: key, Entries: entries})
	check(err)
	same("rows", entries, swapped.Entries)
	same("fixed rows", []gen.SwapJobsExtra{{Name: "x", Score: 1.5}, {Name: "y", Score: 2}}, swapped.Extra)
	check(c.Del(ctx, key).Err())

	pair, err := gen.GetPair(ctx, c, gen.GetPairParams{Job: key})
	check(err)
	same("absent tuple", lua.Opt[gen.GetPairResult]{}, pair)
	check(c.HSet(ctx, key, "o", "me").Err())
	pair, err = gen.GetPair(ctx, c, gen.GetPairParams{Job: key})
	check(err)
	same("tuple", lua.Some(gen.GetPairResult{Owner: "me", TTL: -time.Millisecond}), pair)
	check(c.Del(ctx, key).Err())

	mode, err := gen.ReadMode(ctx, c, gen.ReadModeParams{Job: key})
	check(err)
	same("absent enum", lua.Opt[gen.ReadModeResult]{}, mode)
	check(c.Set(ctx, key, 2, time.Minute).Err())
	mode, err = gen.ReadMode(ctx, c, gen.ReadModeParams{Job: key})
	check(err)
	same("enum", lua.Some(gen.ReadModeResultOff), mode)
	check(c.Del(ctx, key).Err())
}

// elements calls scripts whose keys are made of a name for each element, by the interface of their package.
func elements(c *redis.Client, shop string) {
	ctx := context.Background()
	calls := gen.CallsOn(c)
	pears, plums := "stock:{"+shop+"}:pear", "stock:{"+shop+"}:plum"
	check(c.MSet(ctx, pears, 3, plums, 1).Err())
	p := gen.ReserveParams{Shop: shop, Order: "o1", Skus: []gen.ReserveSku{{Sku: "pear", N: 2}, {Sku: "plum", N: 1, Note: "ripe"}}}
	ok, err := calls.Reserve(ctx, p)
	check(err)
	same("reserved", true, ok)
	same("stock", []any{"1", "0"}, c.MGet(ctx, pears, plums).Val())
	ok, err = calls.Reserve(ctx, p)
	check(err)
	same("sold out", false, ok)
	check(calls.Drop(ctx, gen.DropParams{Shop: shop, Items: []string{"pear", "plum"}}))
	same("dropped", int64(0), c.Exists(ctx, pears, plums).Val())
	check(c.Del(ctx, "log:{"+shop+"}").Err())
	p.Skus[0].Sku = "a}b"
	_, err = calls.Reserve(ctx, p)
	same("a name with a brace", true, errors.Is(err, lua.ErrBadName))

	fake := &gen.FakeCalls{ReserveFunc: func(_ context.Context, p gen.ReserveParams) (bool, error) { return p.Order == "o1", nil }}
	ok, err = fake.Reserve(ctx, p)
	check(err)
	same("fake", true, ok)
	same("not faked", "gen: FakeCalls.DropFunc is nil: set it", fmt.Sprint(fake.Drop(ctx, gen.DropParams{})))
}
