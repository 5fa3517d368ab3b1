package limit

import "time"

// Parts are the integers of a rate: of a token, of a us, of the burst, of the longest debt.
func (r Rate) Parts(maxDebt time.Duration) (token, rate, room, most int64, err error) {
	p, err := r.parts(maxDebt)
	return p.token, p.rate, p.room, p.most, err
}
