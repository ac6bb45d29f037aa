package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Distribution says which records operations prefer.
type Distribution int

const (
	// Uniform: every record is as likely as every other.
	Uniform Distribution = iota
	// Zipfian: few records get most operations (theta 0.99), and these records are scattered over the
	// key space.
	Zipfian
	// Latest: the most recently inserted records get most operations.
	Latest
)

// Distributions are the names that ParseDistribution accepts.
var Distributions = []string{"uniform", "zipfian", "latest"}

func (d Distribution) String() string {
	if d < 0 || int(d) >= len(Distributions) {
		return fmt.Sprintf("Distribution(%d)", int(d))
	}
	return Distributions[d]
}

// ParseDistribution is the inverse of String.
func ParseDistribution(name string) (Distribution, error) {
	for i, known := range Distributions {
		if name == known {
			return Distribution(i), nil
		}
	}
	return 0, fmt.Errorf("unknown key distribution %q: use one of %s", name,
		strings.Join(Distributions, ", "))
}

// chooser draws the record for an operation. All clients share one chooser. The source of random
// numbers belongs to the client.
type chooser interface {
	choose(r *rand.Rand) uint64
}

func newChooser(d Distribution, records uint64, inserted *insertCounter) chooser {
	switch d {
	case Zipfian:
		return &scrambledZipfian{zipf: newZipf(records, zipfTheta)}
	case Latest:
		return &latest{zipf: newZipf(records, zipfTheta), inserted: inserted}
	default:
		return uniform(records)
	}
}

type uniform uint64

func (u uniform) choose(r *rand.Rand) uint64 { return r.Uint64N(uint64(u)) }

// scrambledZipfian scatters the popular ranks over the records by a hash, so that the popular keys
// lie in all partitions.
type scrambledZipfian struct{ zipf *zipf }

func (s *scrambledZipfian) choose(r *rand.Rand) uint64 {
	return mix(^s.zipf.draw(r)) % s.zipf.n
}

// latest counts back from the newest acknowledged insert. The number of ranks is the number of
// records at the start of the run. Older records are never drawn. With YCSB's skew they would
// hardly ever be drawn.
type latest struct {
	zipf     *zipf
	inserted *insertCounter
}

func (l *latest) choose(r *rand.Rand) uint64 {
	// At least zipf.n records exist, so the result is not below zero.
	return l.inserted.acknowledged() - 1 - l.zipf.draw(r)
}
