package keys

import (
	"encoding/binary"
	"math/bits"
)

// MaxHashPartitions is the highest number of partitions of a hash keyspace.
const MaxHashPartitions = 16384

// HashPartition is the partition, 0 to n-1, in which a hash keyspace of n partitions keeps a user
// key: murmur3_32(userKey) mod n. The function must never change, since stored data depends on it.
// n must not be 0.
func HashPartition(userKey []byte, n uint32) uint32 { return murmur3(userKey) % n }

// murmur3 is MurmurHash3_x86_32 with seed 0. The usual Go library allocates in its checked form,
// and in its unchecked form it does pointer arithmetic that the race detector's pointer checks
// refuse; a test compares murmur3 with that library.
func murmur3(data []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	h, rest := uint32(0), data
	for ; len(rest) >= 4; rest = rest[4:] {
		k := binary.LittleEndian.Uint32(rest) * c1
		h ^= bits.RotateLeft32(k, 15) * c2
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	var k uint32
	for i := len(rest) - 1; i >= 0; i-- {
		k = k<<8 | uint32(rest[i])
	}
	h ^= bits.RotateLeft32(k*c1, 15) * c2
	h ^= uint32(len(data))
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}
