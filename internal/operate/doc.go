// Package operate is what the page and the command line share to look at a server: the ids of all jobs of a state, the
// rates of counters that are read now and then, and what a Redis user must be allowed to run.
//
// A Reader reads the ids page by page, while consumers take some jobs and promoters move others. A rank that counts
// from the head is no place to go on from: each job that leaves before it moves those behind it up, and one of them is
// passed over. A list is read from its tail, by ranks that count from there: what is taken from the head does not move
// them. A sorted set is read on from a score.
package operate
