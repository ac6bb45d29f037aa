package bench

import (
	"math"
	"math/rand/v2"
)

// zipfTheta is the skew that YCSB uses.
const zipfTheta = 0.99

// zipf draws ranks 0..n-1, rank r with probability proportional to 1/(r+1)^theta, by the method of
// Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994). It is
// immutable: all clients share one.
type zipf struct {
	n           uint64
	alpha, eta  float64
	zetaN       float64
	secondBound float64 // 1 + 0.5^theta: below it, rank 1
}

func newZipf(n uint64, theta float64) *zipf {
	if n == 0 {
		n = 1
	}
	zetaN := zeta(n, theta)
	zeta2 := zeta(2, theta)
	return &zipf{
		n:           n,
		alpha:       1 / (1 - theta),
		eta:         (1 - math.Pow(2/float64(n), 1-theta)) / (1 - zeta2/zetaN),
		zetaN:       zetaN,
		secondBound: 1 + math.Pow(0.5, theta),
	}
}

func (z *zipf) draw(r *rand.Rand) uint64 {
	u := r.Float64()
	uz := u * z.zetaN
	if uz < 1 || z.n == 1 {
		return 0
	}
	if uz < z.secondBound {
		return 1
	}
	// For n = 2, eta is not a number. But then zetaN equals secondBound, and one of the two returns
	// above was taken.
	rank := uint64(float64(z.n) * math.Pow(z.eta*u-z.eta+1, z.alpha))
	return min(rank, z.n-1)
}

// zetaExact is the number up to which zeta adds term by term. The rest comes from the
// Euler-Maclaurin formula, whose error is then far below the last digit. So a billion records do
// not delay the start by a minute.
const zetaExact = 100_000

// zeta returns the sum of i^-theta for i in 1..n.
func zeta(n uint64, theta float64) float64 {
	m := min(n, zetaExact)
	sum := 0.0
	for i := uint64(1); i <= m; i++ {
		sum += math.Pow(float64(i), -theta)
	}
	if n == m {
		return sum
	}
	a, b := float64(m), float64(n)
	sum += (math.Pow(b, 1-theta) - math.Pow(a, 1-theta)) / (1 - theta)
	sum += (math.Pow(b, -theta) - math.Pow(a, -theta)) / 2
	sum -= theta / 12 * (math.Pow(b, -theta-1) - math.Pow(a, -theta-1))
	return sum
}
