// Package load measures the cost of a partition, and finds keys where it could be split. It is
// pure: its input is figures and sampled requests with their times, its output is averages, peaks
// and keys.
//
// # Cost
//
// Averages follows a replica's totals: averages over a minute and five minutes, the least load of
// the last three windows, and the highest of the last ten minutes. A load that comes and goes
// within a window causes no split, and a partition whose load was high within the last ten minutes
// is not merged.
//
// # Split keys
//
// Keys draws keys in one window of 20 s, by reservoir sampling, weighted by the cost of requests,
// and judges each of them in the next window: which part of the load is left of it, right of it, on
// the key itself, and on both sides. So every key is judged for a whole window, on requests that
// did not influence its choice. (If keys were replaced in the reservoir while they are judged,
// young ones would have seen too few requests, and old ones would be judged by past load. And a key
// that is judged on the requests from which it was drawn looks better than it is: where keys
// ascend, the middle of the written keys divides them evenly, but everything that comes later is
// right of it.)
//
// A request of several keys or a span that lies on both sides of a key counts as across: after a
// split it would cost both parts. For each drawn key the next key after it is judged too, so that a
// hot key can be separated from its left and from its right.
//
// The cost of a single request is not measured. A read or write of one key counts as one, a batch
// as its keys, and a span as the average cost of spans relative to single keys.
//
// The package imports range/keys only.
package load
