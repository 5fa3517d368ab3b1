package luaprove

import "context"

// rows makes a call of two rows as two calls, in both orders: one of them leaves what the call of both left. A row that
// fails alone would have failed the call.
func (k *checker) rows(ctx context.Context, from state, in Input, want outcome) error {
	if !k.many(in) || len(in.Keys) != 2*len(k.script.Keys) {
		return nil
	}
	first, second := k.row(in, 0), k.row(in, 1)
	for _, order := range [][2]Input{{first, second}, {second, first}} {
		left, err := k.inTurn(ctx, from, order)
		if err != nil || left.same(want.left) {
			return err
		}
	}
	return k.broken("V004: @merge, and a call of two rows leaves what its rows leave in no order", in, from, want.left)
}

// row is one row of a call of several.
func (k *checker) row(in Input, i int) Input {
	keys, args := len(k.script.Keys), len(k.script.Args)
	return Input{in.Keys[i*keys : (i+1)*keys], in.Args[i*args : (i+1)*args]}
}

// inTurn is what two calls leave. Times to live are read later with each.
func (k *checker) inTurn(ctx context.Context, from state, calls [2]Input) (state, error) {
	one, err := k.run(ctx, from, calls[0], 0)
	if err != nil {
		return nil, err
	}
	both, err := k.run(ctx, one.left, calls[1], 0)
	if len(one.left) > 0 {
		for i := range both.left {
			both.left[i].late += one.left[0].late
		}
	}
	return both.left, err
}
