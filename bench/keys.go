package bench

import "math/rand/v2"

// keyDigits is the length of the hexadecimal part of a key.
const keyDigits = 16

// appendKey appends the key of record number n: the prefix and 16 hexadecimal digits of the mixed
// number. The mixing is one to one, so that no two records have the same key. It spreads
// neighbouring numbers over the key space, as YCSB's hashed inserts do.
func appendKey(dst []byte, prefix string, n uint64) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, prefix...)
	mixed := mix(n)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[mixed>>uint(shift)&15])
	}
	return dst
}

// mix is the finaliser of SplitMix64, a bijection of the 64-bit numbers.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// newRandom returns the random stream of a client, derived from the run's seed.
func newRandom(seed uint64, client int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, mix(uint64(client))))
}

// valuePool is the number of random bytes from which values are cut.
const valuePool = 1 << 20

// values returns incompressible values as slices of one shared, immutable pool, so that a value
// costs no copy.
type values struct {
	pool []byte
	size int
}

func newValues(seed uint64, size int) *values {
	pool := make([]byte, valuePool+size)
	source := rand.NewPCG(seed, 0x76616c756573)
	for i := 0; i < len(pool); i += 8 {
		word := source.Uint64()
		for j := i; j < min(i+8, len(pool)); j++ {
			pool[j] = byte(word)
			word >>= 8
		}
	}
	return &values{pool: pool, size: size}
}

// draw returns a value. The caller must not change it.
func (v *values) draw(r *rand.Rand) []byte {
	offset := r.IntN(valuePool)
	return v.pool[offset : offset+v.size : offset+v.size]
}
