package reshape

import (
	"bytes"
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Division is a key that divides the bytes of a partition.
type Division struct {
	// Key is a user key of the partition, but not its start; nil if fewer than two keys were found.
	Key []byte
	// Left counts the bytes left of Key, Total all bytes. Generation is that of the descriptor.
	Left, Total uint64
	Generation  uint64
}

// divideChunk is how many versions are read before a pause.
const divideChunk = 20_000

// Divide finds the key that has the given part of the partition's bytes left of it, as nearly as a
// key can: all versions of a key are on one side. It reads up to the key, a chunk at a time, and
// calls pause after each chunk with the time that it took. The result is exact to one key, but for
// writes meanwhile.
func (r *Reshaper) Divide(ctx context.Context, part float64,
	pause func(worked time.Duration) error) (Division, error) {
	d := r.replica.Descriptor()
	out := Division{Total: r.replica.Stats().Bytes, Generation: d.GetGeneration()}
	span := keys.PartitionSpan(d)
	target := int64(part * float64(out.Total))
	left := int64(0)
	offer := func(key []byte) {
		if bytes.Equal(key, span.Start) || left == 0 {
			return
		}
		if off(left, target) < off(int64(out.Left), target) || out.Key == nil {
			out.Key, out.Left = bytes.Clone(keys.UserKey(d, key)), uint64(left)
		}
	}
	for from := span.Start; from != nil; {
		resume, took, err := r.divideSome(keys.Span{Start: from, End: span.End},
			func(key []byte, size int64) bool {
				if offer(key); left >= target {
					return false
				}
				left += size
				return true
			})
		if err != nil {
			return Division{}, err
		}
		if from = resume; from == nil {
			break
		}
		if err := pause(took); err != nil {
			return Division{}, err
		}
	}
	return out, ctx.Err()
}

// off returns the distance of a sum from the wanted one.
func off(sum, from int64) int64 { return max(sum-from, from-sum) }

func (r *Reshaper) divideSome(span keys.Span, visit func([]byte, int64) bool) (resume []byte,
	took time.Duration, err error) {
	if err := r.replica.Enter(); err != nil {
		return nil, 0, err
	}
	defer r.replica.Exit()
	began := time.Now()
	resume, err = mvcc.KeySizes(r.state, span, divideChunk, visit)
	return resume, time.Since(began), err
}

// LastKey returns the last user key of which the partition has a version, nil if there is none.
func (r *Reshaper) LastKey() ([]byte, error) {
	if err := r.replica.Enter(); err != nil {
		return nil, err
	}
	defer r.replica.Exit()
	d := r.replica.Descriptor()
	key, err := mvcc.LastKey(r.state, keys.PartitionSpan(d))
	if err != nil || key == nil {
		return nil, err
	}
	return keys.UserKey(d, key), nil
}
