// Package load knows what a partition costs, and where it could be split. It is pure: figures and
// sampled requests go in with the time, and averages, peaks and keys come out.
//
// # What it costs
//
// Averages follows the totals that a replica counts: a minute and five minutes of each figure, the
// least load of the last three windows, and the highest of the last ten minutes. A load that comes
// and goes within a window splits nothing, and one that was high ten minutes ago merges nothing.
//
// # Where it could be split
//
// Keys draws keys in one window of 20 s, by reservoir sampling, weighted by what requests cost, and
// judges each of them in the next window: how much of the load is left of it, right of it, on the
// key itself, and on both sides. So every key is judged for a whole window, on requests that had no
// part in its being drawn. (Where keys are replaced in the reservoir while they are judged, young
// ones have seen too little, and old ones are of a load that was; and a key that is judged on the
// requests that it was drawn from looks better than it is: where keys ascend, the middle of those
// that were written divides them evenly, and everything that comes is right of it.)
//
// A request of several keys or a span that lies on both sides counts as across: it costs both
// parts. Two keys are looked at for each that is drawn, the key and the next one after it, so that
// a hot key can be parted from what is left and from what is right of it.
//
// What a single request costs is not measured. A point counts as one, a batch as its keys, and a
// span as what spans have cost on average by the side of points.
//
// The package imports range/keys only.
package load
