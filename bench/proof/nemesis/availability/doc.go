// Package availability measures how long partitions do not answer, and sums the pauses up by kind
// of fault.
//
// A Meter records every answer in a stream of small requests to each partition. Between Begin and
// End it finds each partition's longest time without an answer. A Sample has the pause that one
// fault caused. A Table has the figures of many faults, by kind.
//
// A pause is measured from the last answer before the pause, or from Begin if Begin is later, to
// the first answer after the pause. So the interval between requests limits the precision.
package availability
