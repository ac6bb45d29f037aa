package block

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/golang/snappy"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	versionPlain     = 1
	versionLifetimes = 2

	formPlain  = 0
	formSnappy = 1
)

const (
	// MaxRecords bounds the records of a block.
	MaxRecords = 100_000
	// MaxBody bounds the body of a block before compression. The largest possible record fits.
	MaxBody = 16 << 20
	// overhead bounds the bytes of a record in a body besides its key and value: three lengths, and
	// a lifetime.
	overhead = 3*binary.MaxVarintLen32 + binary.MaxVarintLen64
)

// Writer makes blocks, one after the other. The zero Writer is ready for use. It is for one
// goroutine.
type Writer struct {
	body, last []byte
	// lives holds the lifetimes; nil while all are DefaultLifetime.
	lives   []byte
	records int
	size    uint64
}

// Add adds a record. Its key must be above all before, and its lifetime must not be a time to live.
// The key and the value are copied.
func (w *Writer) Add(r Record) error {
	key, value := r.Key, r.Value
	if err := check(key, value); err != nil {
		return err
	}
	switch {
	case w.records > 0 && bytes.Compare(key, w.last) <= 0:
		return fmt.Errorf("key %s does not follow key %s", keys.Pretty(key), keys.Pretty(w.last))
	case r.Lifetime > 0:
		return fmt.Errorf("key %s has a time to live, and a block holds moments of expiry",
			keys.Pretty(key))
	case !w.Fits(len(key), len(value)):
		return fmt.Errorf("with key %s the block would have more than %d records, or %d MiB",
			keys.Pretty(key), MaxRecords, MaxBody>>20)
	}
	n := shared(w.last, key)
	w.body = binary.AppendUvarint(w.body, uint64(n))
	w.body = binary.AppendUvarint(w.body, uint64(len(key)-n))
	w.body = binary.AppendUvarint(w.body, uint64(len(value)))
	w.body = append(append(w.body, key[n:]...), value...)
	if r.Lifetime != keys.DefaultLifetime && len(w.lives) == 0 {
		// A zero byte encodes DefaultLifetime.
		w.lives = append(w.lives, make([]byte, w.records)...)
	}
	if r.Lifetime != keys.DefaultLifetime || len(w.lives) > 0 {
		w.lives = binary.AppendVarint(w.lives, int64(r.Lifetime))
	}
	w.last = append(w.last[:0], key...)
	w.records++
	w.size += uint64(len(key) + len(value))
	return nil
}

// Fits reports that a record with these lengths can be added.
func (w *Writer) Fits(key, value int) bool {
	return w.records < MaxRecords && len(w.body)+len(w.lives)+key+value+overhead <= MaxBody
}

// Records returns the number of records so far.
func (w *Writer) Records() int { return w.records }

// Size returns the total size of the keys and values.
func (w *Writer) Size() uint64 { return w.size }

// Last returns the last key added. It is valid until the next call.
func (w *Writer) Last() []byte { return w.last }

// Finish returns the block, and begins a new one.
func (w *Writer) Finish() []byte {
	const header = 2 + 3*binary.MaxVarintLen64
	version := byte(versionPlain)
	lives := len(w.lives)
	if lives > 0 {
		version, w.body = versionLifetimes, append(w.body, w.lives...)
	}
	compressed := make([]byte, header+snappy.MaxEncodedLen(len(w.body)))
	head := append(compressed[:0], version, formSnappy)
	head = binary.AppendUvarint(head, uint64(w.records))
	head = binary.AppendUvarint(head, uint64(len(w.body)))
	if lives > 0 {
		head = binary.AppendUvarint(head, uint64(lives))
	}
	n := len(snappy.Encode(compressed[len(head):], w.body))
	out := compressed[:len(head)+n]
	if n >= len(w.body) {
		out[1] = formPlain
		out = append(out[:len(head)], w.body...)
	}
	w.body, w.lives, w.last, w.records, w.size = w.body[:0], w.lives[:0], w.last[:0], 0, 0
	return out
}

// shared returns the length of the common prefix of two keys.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func check(key, value []byte) error {
	if err := keys.ValidateUserKey(key); err != nil {
		return err
	}
	if err := keys.ValidateValue(value); err != nil {
		return fmt.Errorf("key %s: %w", keys.Pretty(key), err)
	}
	return nil
}
