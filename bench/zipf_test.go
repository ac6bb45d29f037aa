package bench

import (
	"math"
	"testing"
)

// The naive zeta beside the one with the closed form, on both sides of the seam.
func TestZetaAgreesWithTheSum(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 1000, zetaExact, zetaExact + 1, 3 * zetaExact} {
		want := 0.0
		for i := uint64(1); i <= n; i++ {
			want += math.Pow(float64(i), -zipfTheta)
		}
		if got := zeta(n, zipfTheta); math.Abs(got-want)/want > 1e-12 {
			t.Errorf("zeta(%d) = %.15g, the sum is %.15g", n, got, want)
		}
	}
}

// The drawn ranks follow 1/(r+1)^theta: the first two exactly, the rest as well as the method of
// Gray et al. does.
func TestZipfShares(t *testing.T) {
	const n, draws = 1000, 2_000_000
	z := newZipf(n, zipfTheta)
	random := newRandom(1, 0)
	counts := make([]int, n)
	for range draws {
		counts[z.draw(random)]++
	}
	zetaN := zeta(n, zipfTheta)
	for _, span := range []struct {
		from, to  int
		tolerance float64
	}{{0, 1, 0.02}, {1, 2, 0.02}, {2, 10, 0.15}, {10, 100, 0.05}, {100, 500, 0.05},
		{500, 1000, 0.05}} {
		want, got := 0.0, 0.0
		for r := span.from; r < span.to; r++ {
			want += math.Pow(float64(r+1), -zipfTheta) / zetaN
			got += float64(counts[r]) / draws
		}
		if math.Abs(got-want)/want > span.tolerance {
			t.Errorf("ranks %d to %d have share %.4f, want %.4f", span.from, span.to, got, want)
		}
	}
}

func TestZipfOfVeryFewRecords(t *testing.T) {
	for n := uint64(1); n <= 3; n++ {
		z, random := newZipf(n, zipfTheta), newRandom(7, 0)
		seen := make(map[uint64]bool)
		for range 1000 {
			rank := z.draw(random)
			if rank >= n {
				t.Fatalf("of %d records, drew rank %d", n, rank)
			}
			seen[rank] = true
		}
		if len(seen) != int(n) {
			t.Errorf("of %d records, only %d were ever drawn", n, len(seen))
		}
	}
}
