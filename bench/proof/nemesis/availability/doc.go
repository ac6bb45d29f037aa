// Package availability measures for how long partitions do not answer, and sums that up by kind of
// fault.
//
// A Meter takes every answer of a stream of small requests to each partition. Between Begin and End
// it knows the longest time without an answer of each partition: what a fault kept away. A Sample
// is what one fault did, a Table the figures of many, by kind.
//
// A pause is measured from the last answer before it, or from Begin if that is later, to the first
// answer after it. The measure is therefore only as fine as the requests are frequent.
package availability
